"""Strings for tokenizers: every script, emoji, white space, numbers, code, broken UTF-8; as bytes."""
import random

PLAIN = ["", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\t\t x", " \n ", "a\n\n\nb", "a  \n  b", "x\r\ny\r\n", "\rx\r", "a\u00a0b", "a\u2003b \u3000c",
         "\u200b\u200bz", " lead", "trail ", " " * 33, "\n" * 9 + "a", "\t" * 7 + "if x:\n\t\treturn", "a\x00b", "\x01\x02\x1c\x85x", "\ufeffbom", "\v\f x",
         "I'm you're he'll they've we'd it's don't DON'T I'M 'LL'll", "can’t won’t", "'", "''", "'re'nt", "o'clock", "0", "12", "1234567890", "3.14159",
         "1,000,000.00", "0x1F", "½ ² ³ ①② ٣٤٥ १२३ 𝟙𝟚", "9" * 40, "Hello, world!", "camelCase snake_case kebab-case", "https://example.com/path?query=1&b=2#frag",
         "C:\\Users\\x", "wait... what?!", "!@#$%^&*()_+-=[]{}|;':\",./<>?`~", "**bold** _it_ `code`", "你好，世界！", "日本語のテキスト、カタカナ。", "한국어 문장입니다",
         "混合 mixed 文字 123", "ภาษาไทย", "العربية نص", "עברית", "हिन्दी पाठ नमस्ते", "বাংলা", "Ελληνικά", "Русский ёлка", "Việt Nam có dấu", "İıĞğ", "ქართული",
         "አማርኛ", "བོད་ཡིག", "தமிழ்", "ខ្មែរ", "မြန်မာ", "😀😃", "👩‍👩‍👧‍👦", "👍🏽", "🇩🇪🇯🇵", "❤️", "🧑🏿‍🚀 astronaut", "#️⃣", "é e\u0301 n\u0303", "Z͑ͫ̓ͪ̂ͫ", "ﬁ ﬀ", "Å Å",
         "ｆｕｌｌ　ＡＢＣ１２３", "ǅ ǆ", "한글", "\u202eRTL\u202c", "soft\u00adhyphen", "\U000e0001tag", "<|im_start|>user\nHi<|im_end|>\n", "x<|im_end|>y",
         "<|im_start|", "<|im_start|><|im_start|>", "<think>\nhmm\n</think>", " <|im_end|> ", "<tool_call>\n{\"a\": 1}\n</tool_call>",
         "def f(x: int) -> str:\n    \"\"\"Doc.\"\"\"\n    return f\"{x:>5}\"\n", "for (int i = 0; i < n; ++i) {\n\tstd::cout << v[i] << '\\n';\n}\n"]
BROKEN = [b"\xff", b"a\xffb", b"\xc3(", b"\xe4\xbd", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\x80", b"\xf5\x80\x80\x80", b"x\x80\x80y", b"\xf0\x80\x80\x80",
          b"\xe0\x80\xaf", b"ok \xf0\x9f\x91\xa9\xe2\x80 end", b"\xf4\x90\x80\x80"]
ASCII = list("abcdefghijklmnopqrstuvwxyzABCDEFXYZ0123456789     \n\t.,;:!?'\"-_()[]{}<>/\\|@#$%^&*+=~`")
BLOCKS = [(0xa0, 0x17f), (0x300, 0x370), (0x370, 0x3ff), (0x400, 0x45f), (0x590, 0x5ff), (0x600, 0x6ff), (0x900, 0x97f), (0xe00, 0xe5b), (0x1100, 0x11ff),
          (0x2000, 0x206f), (0x2190, 0x21ff), (0x2600, 0x26ff), (0x3000, 0x30ff), (0x4e00, 0x4fff), (0xac00, 0xad00), (0xff00, 0xffef), (0x1f300, 0x1f6ff),
          (0x10000, 0x10100), (0x1d400, 0x1d7ff)]
UNICODE = [chr(c) for first, last in BLOCKS for c in range(first, last)]
MIX = [" ", "  ", "\n", "\r\n", "\t", "\u3000", "a", "B", "1", "22", "'s", "'LL", "é", "e\u0301", "中", "😀", "<|im_end|>", "<think>", "."]
WORDS = "the of and to in is that for it as was with be by on not he his but at are this have from or had which one you were".split()


def all_strings(count):
    r = random.Random(11)
    out = [s.encode() for s in PLAIN] + BROKEN
    for i in range(count - len(out)):
        kind, length = i % 5, r.randint(1, 60)
        if kind == 0:
            text = "".join(r.choice(ASCII) for _ in range(length)).encode()
        elif kind == 1:
            text = "".join(r.choice(UNICODE if r.random() < 0.5 else ASCII) for _ in range(length)).encode()
        elif kind == 2:
            text = "".join(r.choice(MIX) for _ in range(length // 2)).encode()
        elif kind == 3:
            text = (" ".join(r.choice(WORDS) for _ in range(length // 3)) + r.choice([".", "!", "\n", "?\r\n", ""])).encode()
        else:
            text = bytearray("".join(r.choice(UNICODE + ASCII) for _ in range(length)).encode())
            for _ in range(r.randint(1, 3)):
                text[r.randrange(len(text))] = r.randrange(256)
        out.append(bytes(text))
    return out
