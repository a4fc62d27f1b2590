"""What the scripted model says to the SDK tests in Python and JavaScript."""
from common import call, thinking_or_not

SCRIPT = [
    *thinking_or_not({"match": ["<tool_response>", "21 degrees"], "text": "It is 21 degrees in Paris."}),
    *thinking_or_not({"match": ["\"get_weather\"", "weather in Paris"], "text": "I look it up.\n" + call("get_weather", city="Paris", days=2)}),
    *thinking_or_not({"match": "as JSON", "text": "{\"city\":\"Paris\",\"degrees\":21}"}),
    {"match": "endless", "text": "tick ", "repeat": 100000, "delay_ms": 2},
    {"match": "break", "text": "half", "end": "fail"},
    *thinking_or_not({"text": "Hello, world."}),
]
