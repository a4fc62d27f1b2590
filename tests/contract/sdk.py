"""What users do with the Python SDKs: plain, streamed, tools, structured output, errors, cancel.  Called by check_sdks.py."""
import os

import anthropic
import openai
from pydantic import BaseModel

URL = os.environ["URL"]
client = openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0, timeout=20)
claude = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0, timeout=20)
HELLO = "Hello, world."
ASK = [{"role": "user", "content": "Say hello."}]
WEATHER = [{"role": "user", "content": "What is the weather in Paris?"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "The weather.", "parameters": SCHEMA}}]
CLAUDE_TOOLS = [{"name": "get_weather", "description": "The weather.", "input_schema": SCHEMA}]


class Weather(BaseModel):
    city: str
    degrees: int


def check(function):
    name = "sdk-python-" + function.__name__.replace("_", "-")
    try:
        remark = function() or ""
        print(f"ok {name}  {remark}", flush=True)
    except Exception as e:
        print(f"FAIL {name}  {type(e).__name__}: {str(e)[:500]}", flush=True)
    return function


@check
def openai_chat():
    r = client.chat.completions.create(model="m", messages=ASK)
    assert r.choices[0].message.content == HELLO and r.choices[0].finish_reason == "stop", r
    assert r.usage.prompt_tokens > 5 and r.usage.completion_tokens > 1 and r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens
    again = client.chat.completions.create(model="m", messages=ASK)
    assert again.usage.prompt_tokens_details.cached_tokens > 0


@check
def openai_chat_stream():
    chunks = list(client.chat.completions.create(model="m", messages=ASK, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == HELLO
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[-1].usage.completion_tokens > 1 and not chunks[-1].choices
    assert len({c.id for c in chunks}) == 1


@check
def openai_chat_reasoning():
    r = client.chat.completions.create(model="m", messages=ASK, reasoning_effort="high")
    m = r.choices[0].message
    assert m.content == HELLO and m.reasoning_content.strip() == "Let me see.", m
    assert r.usage.completion_tokens_details.reasoning_tokens > 0


@check
def openai_chat_tools():
    with client.chat.completions.stream(model="m", messages=WEATHER, tools=TOOLS) as stream:
        for _ in stream:
            pass
        choice = stream.get_final_completion().choices[0]
    whole = client.chat.completions.create(model="m", messages=WEATHER, tools=TOOLS).choices[0]
    for c in (choice, whole):
        call = c.message.tool_calls[0]
        assert c.finish_reason == "tool_calls" and call.function.name == "get_weather" and "look" in c.message.content
        assert eval(call.function.arguments) == {"city": "Paris", "days": 2}
    messages = WEATHER + [whole.message.model_dump(exclude_none=True),
                          {"role": "tool", "tool_call_id": whole.message.tool_calls[0].id, "content": "21 degrees"}]
    r = client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
    assert r.choices[0].message.content == "It is 21 degrees in Paris."


@check
def openai_chat_parse():
    r = client.chat.completions.parse(model="m", messages=[{"role": "user", "content": "The weather as JSON."}], response_format=Weather)
    assert r.choices[0].message.parsed == Weather(city="Paris", degrees=21)


@check
def openai_responses():
    r = client.responses.create(model="m", input="Say hello.")
    assert r.output_text == HELLO and r.status == "completed" and r.usage.output_tokens > 1
    kinds, text = [], ""
    for event in client.responses.create(model="m", input="Say hello.", stream=True):
        kinds.append(event.type)
        text += event.delta if event.type == "response.output_text.delta" else ""
    assert text == HELLO and kinds[0] == "response.created" and kinds[-1] == "response.completed", kinds


@check
def openai_responses_tools():
    tools = [{"type": "function", "name": "get_weather", "description": "The weather.", "parameters": SCHEMA}]
    r = client.responses.create(model="m", input=WEATHER, tools=tools)
    call = next(item for item in r.output if item.type == "function_call")
    assert call.name == "get_weather" and eval(call.arguments) == {"city": "Paris", "days": 2}
    more = WEATHER + [item.model_dump(exclude_none=True) for item in r.output] + [
        {"type": "function_call_output", "call_id": call.call_id, "output": "21 degrees"}]
    assert client.responses.create(model="m", input=more, tools=tools).output_text == "It is 21 degrees in Paris."


@check
def openai_responses_parse():
    r = client.responses.parse(model="m", input="The weather as JSON.", text_format=Weather)
    assert r.output_parsed == Weather(city="Paris", degrees=21)


@check
def openai_completions():
    r = client.completions.create(model="m", prompt="Once", max_tokens=3, logprobs=1, seed=5)
    assert r.choices[0].finish_reason == "length" and r.usage.completion_tokens == 3 and len(r.choices[0].logprobs.tokens) == 3
    assert r.choices[0].text == "".join(r.choices[0].logprobs.tokens)


@check
def openai_errors():
    for error, function in [
            (openai.BadRequestError, lambda: client.chat.completions.create(model="m", messages=ASK, temperature="warm")),
            (openai.BadRequestError, lambda: client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x " * 300000}])),
            (openai.NotFoundError, lambda: client.embeddings.create(model="m", input="x"))]:
        try:
            function()
        except error as e:
            assert e.body["message"] and e.request_id, e.body
            code = e.code
        else:
            raise AssertionError(f"no {error.__name__}")
        if error is openai.BadRequestError:
            last = code
    assert last == "context_length_exceeded", last
    try:
        list(client.chat.completions.create(model="m", messages=[{"role": "user", "content": "break"}], stream=True))
    except openai.APIError as e:
        assert "fails" in str(e), e
    else:
        raise AssertionError("no error in the stream")


@check
def openai_cancel():
    stream = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "endless"}], stream=True)
    next(iter(stream))
    stream.close()


@check
def openai_models():
    assert [m.id for m in client.models.list()] == ["m"] and client.models.retrieve("m").id == "m"


@check
def anthropic_messages():
    r = claude.messages.create(model="m", max_tokens=100, messages=ASK)
    assert r.content[0].text == HELLO and r.stop_reason == "end_turn" and r.usage.output_tokens > 1
    count = claude.messages.count_tokens(model="m", messages=ASK).input_tokens
    again = claude.messages.create(model="m", max_tokens=100, messages=ASK).usage
    assert count == again.input_tokens + again.cache_read_input_tokens + again.cache_creation_input_tokens, (count, again)
    assert again.cache_read_input_tokens > 0


@check
def anthropic_stream():
    with claude.messages.stream(model="m", max_tokens=100, messages=ASK, system="Be kind.") as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == HELLO and final.stop_reason == "end_turn" and final.usage.output_tokens > 1
    with claude.messages.stream(model="m", max_tokens=2000, messages=ASK, thinking={"type": "enabled", "budget_tokens": 1024}) as stream:
        final = stream.get_final_message()
    assert [b.type for b in final.content] == ["thinking", "text"] and final.content[0].signature is not None


@check
def anthropic_tools():
    with claude.messages.stream(model="m", max_tokens=100, messages=WEATHER, tools=CLAUDE_TOOLS) as stream:
        final = stream.get_final_message()
    whole = claude.messages.create(model="m", max_tokens=100, messages=WEATHER, tools=CLAUDE_TOOLS)
    for r in (final, whole):
        assert r.stop_reason == "tool_use" and r.content[-1].name == "get_weather" and r.content[-1].input == {"city": "Paris", "days": 2}, r
    messages = WEATHER + [{"role": "assistant", "content": whole.content},
                          {"role": "user", "content": [{"type": "tool_result", "tool_use_id": whole.content[-1].id, "content": "21 degrees"}]}]
    r = claude.messages.create(model="m", max_tokens=100, messages=messages, tools=CLAUDE_TOOLS)
    assert r.content[0].text == "It is 21 degrees in Paris."


@check
def anthropic_json():
    r = claude.messages.create(model="m", max_tokens=100, messages=[{"role": "user", "content": "The weather as JSON."}],
                               output_config={"format": {"type": "json_schema", "schema": Weather.model_json_schema() | {"additionalProperties": False}}})
    assert Weather.model_validate_json(r.content[0].text).degrees == 21


@check
def anthropic_errors():
    try:
        claude.messages.create(model="m", max_tokens=100, messages=[{"role": "user", "content": "x " * 300000}])
    except anthropic.BadRequestError as e:
        assert "prompt is too long: " in str(e) and e.request_id
    else:
        raise AssertionError("no error")
    try:
        claude.messages.create(model="m", max_tokens=100, messages=[{"role": "robot", "content": "x"}])
    except anthropic.BadRequestError as e:
        assert "role" in str(e)
    else:
        raise AssertionError("no error")


@check
def anthropic_cancel():
    with claude.messages.stream(model="m", max_tokens=1000000, messages=[{"role": "user", "content": "endless"}]) as stream:
        next(iter(stream.text_stream))


@check
def anthropic_models():
    assert [m.id for m in claude.models.list()] == ["m"]
