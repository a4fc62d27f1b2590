#include "text/tokenizer.h"

#include <chrono>
#include <cmath>
#include <gtest/gtest.h>

#include "text/byte_vocabulary.h"

namespace invar {
namespace {

constexpr Token kHello = 256, kSpaceHi = 259, kEnd = 261, kTool = 262;

// 256 bytes, a few merges, <|end|> (control), <tool> (user-defined), an unused token.
TokenizerSpec byte_spec() {
  TokenizerSpec spec;
  spec.model = "gpt2";
  spec.pre = "llama-bpe";
  for (int b = 0; b < 256; b++) spec.pieces.push_back(byte_letter(b));
  const std::string space = byte_letter(' ');
  for (const std::string& piece :
       {std::string("hello"), std::string("he"), std::string("hi"), space + "hi", std::string("ll")}) {
    spec.pieces.push_back(piece);
  }
  spec.types.assign(spec.pieces.size(), 1);
  for (const char* piece : {"<|end|>", "<tool>", "never"}) spec.pieces.push_back(piece);
  spec.types.insert(spec.types.end(), {3, 4, 5});
  spec.merges = {"h e", "h i", space + " hi", "l l"};
  return spec;
}

Tokenizer make(const TokenizerSpec& spec) {
  Result<Tokenizer> made = Tokenizer::make(spec);
  if (!made) ADD_FAILURE() << made.error().where << ": " << made.error().message;
  return made.take();
}

std::vector<Token> bytes_of(std::string_view text) {
  std::vector<Token> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

std::vector<Token> join(std::initializer_list<std::vector<Token>> parts) {
  std::vector<Token> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

TEST(Tokenizer, MergesBytesOfWords) {
  const Tokenizer t = make(byte_spec());
  EXPECT_EQ(t.size(), 264);
  EXPECT_EQ(*t.encode("", AddedTokens::All), std::vector<Token>{});
  EXPECT_EQ(*t.encode("hello", AddedTokens::All),
            std::vector<Token>{kHello});  // a whole word, no merges lead there
  EXPECT_EQ(*t.encode("x hi", AddedTokens::All), join({bytes_of("x"), {kSpaceHi}}));
  EXPECT_EQ(*t.encode("never", AddedTokens::All), bytes_of("never"));          // nor is an unused token found
  EXPECT_EQ(*t.encode("\xFFz", AddedTokens::All), bytes_of("\xEF\xBF\xBDz"));  // not UTF-8
}

TEST(Tokenizer, FindsAddedTokensByMode) {
  const Tokenizer t = make(byte_spec());
  const std::string text = "x<|end|><tool>";
  EXPECT_EQ(*t.encode(text, AddedTokens::All), join({bytes_of("x"), {kEnd, kTool}}));
  EXPECT_EQ(*t.encode(text, AddedTokens::User), join({bytes_of("x<|end|>"), {kTool}}));
  EXPECT_EQ(*t.encode(text, AddedTokens::None), bytes_of(text));
}

TEST(Tokenizer, MarkedTextStaysText) {
  const Tokenizer t = make(byte_spec());
  for (const std::string text : {"a<|end|>b", "<|end|>", "<|end|><|end|>", "cut <|en", "<|e", "plain"}) {
    const std::string marked = *t.mark_control(text);
    EXPECT_EQ(*t.encode_marked(marked), *t.encode(text, AddedTokens::None)) << text;
    EXPECT_EQ(*t.encode_marked(marked + "<|end|>"), join({*t.encode(text, AddedTokens::None), {kEnd}}))
        << text;
  }
  EXPECT_EQ(*t.mark_control("plain"), "plain");
  // Two strings of a request that a template joins.
  EXPECT_EQ(*t.encode_marked(*t.mark_control("<|en") + *t.mark_control("d|>")), bytes_of("<|end|>"));
  // Marks that came from outside do nothing.
  const std::string open = "\xEF\xB7\x90", close = "\xEF\xB7\x91";
  EXPECT_EQ(*t.encode_marked(*t.mark_control(close + "<|end|>" + open)),
            bytes_of("\xEF\xBF\xBD<|end|>\xEF\xBF\xBD"));
  EXPECT_EQ(*t.encode_marked(open + "<tool>" + close + "<tool>"), join({bytes_of("<tool>"), {kTool}}));
}

TEST(Tokenizer, KnowsPieces) {
  const Tokenizer t = make(byte_spec());
  EXPECT_EQ(t.piece(0xFF), "\xFF");
  EXPECT_EQ(t.piece(kSpaceHi), " hi");
  EXPECT_EQ(t.piece(kEnd), "<|end|>");
  EXPECT_EQ(t.piece(-1), "");
  EXPECT_EQ(t.piece(264), "");
  EXPECT_EQ(t.type(kEnd), TokenType::Control);
  EXPECT_EQ(t.type(1000), TokenType::Undefined);
  EXPECT_EQ(t.find("<tool>"), kTool);
  EXPECT_EQ(t.find("<thin"), std::nullopt);
}

TEST(Tokenizer, NormalisesWhereTheFamilyDoes) {
  TokenizerSpec spec = byte_spec();
  const std::string decomposed = "e\xCC\x81", composed = "\xC3\xA9";
  EXPECT_EQ(*make(spec).encode(decomposed, AddedTokens::All), bytes_of(decomposed));
  spec.pre = "qwen2";
  EXPECT_EQ(*make(spec).encode(decomposed, AddedTokens::All), bytes_of(composed));
  spec.nfc = false;
  EXPECT_EQ(*make(spec).encode(decomposed, AddedTokens::All), bytes_of(decomposed));
}

TokenizerSpec piece_spec() {  // SentencePiece
  TokenizerSpec spec;
  spec.model = "llama";
  const std::string space = "\xE2\x96\x81";
  spec.pieces = {"<unk>", "<s>", "<0x0A>", "<0xC3>", "<0xA9>", space, "a", "b", "ab", space + "a", "<tool>"};
  spec.types = {2, 3, 6, 6, 6, 1, 1, 1, 1, 1, 4};
  spec.scores = {0, 0, 0, 0, 0, -1, -2, -3, -4, -5, 0};
  return spec;
}

TEST(Tokenizer, SentencePiece) {
  TokenizerSpec spec = piece_spec();
  const Tokenizer t = make(spec);
  EXPECT_EQ(*t.encode("ab", AddedTokens::All), (std::vector<Token>{5, 8}));  // the better score goes first
  EXPECT_EQ(*t.encode("a\n", AddedTokens::All), (std::vector<Token>{9, 2}));
  EXPECT_EQ(*t.encode("\xC3\xA9", AddedTokens::All), (std::vector<Token>{5, 3, 4}));
  EXPECT_EQ(*t.encode("a<tool>a", AddedTokens::All), (std::vector<Token>{9, 10, 9}));
  EXPECT_EQ(*t.encode("<s>", AddedTokens::All), std::vector<Token>{1});
  EXPECT_EQ(decode(t, std::vector<Token>{9, 2, 1, 9, 3, 4}), "a\n a\xC3\xA9");
  spec.add_space_prefix = false;
  EXPECT_EQ(*make(spec).encode("ab", AddedTokens::All), std::vector<Token>{8});
}

TEST(Tokenizer, ReadsTokenizerJson) {
  TokenizerSpec spec;
  spec.tokenizer_json =
      R"({"added_tokens": [{"id": 4, "content": "<s>", "special": true}, {"id": 6, "content": "<t>", "special": false}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "\u0120": 3}, "merges": [["a", "b"]]}})";
  const Tokenizer t = make(spec);
  EXPECT_EQ(t.size(), 7);
  EXPECT_EQ(*t.encode("ab a<s><t>", AddedTokens::All), (std::vector<Token>{2, 3, 0, 4, 6}));
  EXPECT_EQ(t.type(4), TokenType::Control);
  EXPECT_EQ(t.type(5), TokenType::Unused);
  EXPECT_EQ(t.type(6), TokenType::UserDefined);
  EXPECT_EQ(t.piece(3), " ");
}

struct Fault {
  const char* what;
  void (*damage)(TokenizerSpec&);
  Code code;
  const char* where;
};

TEST(Tokenizer, RefusesWhatIsWrongByKey) {
  const Fault faults[] = {
      {"types-few", [](TokenizerSpec& s) { s.types.resize(10); }, Code::BadFile, "tokenizer.ggml.token_type"},
      {"type-odd", [](TokenizerSpec& s) { s.types[3] = 77; }, Code::BadFile, "tokenizer.ggml.token_type"},
      {"merge-of-unknown", [](TokenizerSpec& s) { s.merges[1] = "zzz qqq"; }, Code::BadFile,
       "tokenizer.ggml.merges"},
      {"merge-to-unknown", [](TokenizerSpec& s) { s.merges[1] = "i h"; }, Code::BadFile,
       "tokenizer.ggml.merges"},
      {"merge-unsplit", [](TokenizerSpec& s) { s.merges[1] = "hi"; }, Code::BadFile, "tokenizer.ggml.merges"},
      {"merge-empty", [](TokenizerSpec& s) { s.merges[1] = ""; }, Code::BadFile, "tokenizer.ggml.merges"},
      {"not-utf8", [](TokenizerSpec& s) { s.pieces[9] = "he\xFF"; }, Code::BadFile, "tokenizer.ggml.tokens"},
      {"no-tokens", [](TokenizerSpec& s) { s.pieces.clear(); }, Code::BadFile, "tokenizer.ggml.token_type"},
      {"no-scores", [](TokenizerSpec& s) { s = piece_spec(), s.scores.pop_back(); }, Code::BadFile,
       "tokenizer.ggml.scores"},
      {"nan-score", [](TokenizerSpec& s) { s = piece_spec(), s.scores[2] = NAN; }, Code::BadFile,
       "tokenizer.ggml.scores"},
      {"model", [](TokenizerSpec& s) { s.model = "frob"; }, Code::Unsupported, "tokenizer.ggml.model"},
      {"pre", [](TokenizerSpec& s) { s.pre = "frob"; }, Code::Unsupported, "tokenizer.ggml.pre"},
      {"bos", [](TokenizerSpec& s) { s.bos = 264; }, Code::BadFile, "tokenizer.ggml.bos_token_id"},
      {"eos",
       [](TokenizerSpec& s) {
         s.eos = {5, -1};
       },
       Code::BadFile, "tokenizer.ggml.eos_token_id"},
      {"json", [](TokenizerSpec& s) { s.tokenizer_json = "{"; }, Code::BadFile, "tokenizer.json"},
      {"json-model", [](TokenizerSpec& s) { s.tokenizer_json = R"({"model": {"type": "Unigram"}})"; },
       Code::Unsupported, "tokenizer.json"},
      {"json-vocab",
       [](TokenizerSpec& s) {
         s.tokenizer_json =
             R"({"pre_tokenizer": {"type": "ByteLevel"}, "model": {"vocab": {"a": -1}, "merges": []}})";
       },
       Code::BadFile, "tokenizer.json"},
  };
  for (const Fault& fault : faults) {
    TokenizerSpec spec = byte_spec();
    fault.damage(spec);
    const Result<Tokenizer> made = Tokenizer::make(spec);
    ASSERT_FALSE(made) << fault.what;
    EXPECT_EQ(made.error().code, fault.code) << fault.what << ": " << made.error().message;
    EXPECT_EQ(made.error().where, fault.where) << fault.what << ": " << made.error().message;
  }
}

TEST(Tokenizer, NamesWhatItDoesNotSupport) {
  TokenizerSpec spec = byte_spec();
  spec.model = "frob";
  EXPECT_NE(Tokenizer::make(spec).error().message.find("frob"), std::string::npos);
}

struct Bytes {
  std::string in, out;
};

TEST(Utf8Stream, DoesNotDependOnHowTheBytesAreCut) {
  const std::string bad = "\xEF\xBF\xBD";
  const Bytes cases[] = {
      {"ok \xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x92\xBB \xC3\xA9",
       "ok \xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x92\xBB \xC3\xA9"},
      {"abc\xF0\x9F\x9A", "abc" + bad},  // cut by the end: one part
      {"a\xFF"
       "b\xC3(c",
       "a" + bad + "b" + bad + "(c"},
      {"\xE2\x80(", bad + "("},           // the longest beginning of a character is one part
      {"\xED\xA0\x80", bad + bad + bad},  // a surrogate
      {"\xC0\x80\xF5", bad + bad + bad},
      {"\xF0\x80\x80", bad + bad + bad},  // overlong
      {"\xF4\x90", bad + bad},
  };
  for (const Bytes& c : cases) {
    for (size_t size = 1; size <= c.in.size(); size++) {
      Utf8Stream stream;
      std::string out;
      for (size_t at = 0; at < c.in.size(); at += size) out += stream.push(c.in.substr(at, size));
      out += stream.finish();
      EXPECT_EQ(out, c.out) << "in pieces of " << size;
      EXPECT_EQ(stream.finish(), "");
    }
  }
}

TEST(TextStream, ShowsCharactersAtOnceAndNoControlTokens) {
  const Tokenizer t = make(byte_spec());
  TextStream stream(t);
  EXPECT_EQ(stream.push(kEnd), "");
  EXPECT_EQ(stream.push(kTool), "<tool>");
  EXPECT_EQ(stream.push(0xC3), "");
  EXPECT_EQ(stream.push(0xA9), "\xC3\xA9");
  EXPECT_EQ(stream.push(0xE2), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
}

TEST(Tokenizer, FindingATokenTakesNoLongerInALargeVocabulary) {
  TokenizerSpec spec = byte_spec();
  for (int i = 0; i < 200000; i++) spec.pieces.push_back("t" + std::to_string(i));
  spec.types.resize(spec.pieces.size(), 1);
  const Tokenizer t = make(spec);
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 5000; i++) ASSERT_FALSE(t.find("<parameter=" + std::to_string(i)));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(200));
  EXPECT_EQ(t.find("<|end|>"), kEnd);
  EXPECT_EQ(t.find("never"), kTool + 1);
  EXPECT_EQ(t.find("t7"), kTool + 9);
}

}  // namespace
}  // namespace invar
