"""Asks the server as lm-evaluation-harness does; prints what it was told as JSON.  Runs in the harness's environment."""
import json
import os
import sys

from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalCompletionsAPI


def main():
    asked = json.load(sys.stdin)
    lm = LocalCompletionsAPI(model="m", base_url=os.environ["URL"] + "/v1/completions", tokenizer_backend="remote", tokenized_requests=True,
                             batch_size=4, num_concurrent=2)
    scores = lm.loglikelihood([Instance("loglikelihood", {}, tuple(pair), i) for i, pair in enumerate(asked["pairs"])])
    words = {"until": ["\n", "zzzz"], "max_gen_toks": 12, "temperature": 0}
    texts = lm.generate_until([Instance("generate_until", {}, (text, words), i) for i, text in enumerate(asked["begins"])])
    tokens = [[lm.tok_encode(begin), lm.tok_encode(begin + end)] for begin, end in asked["pairs"]]
    json.dump({"scores": scores, "texts": texts, "tokens": tokens}, sys.stdout)


main()
