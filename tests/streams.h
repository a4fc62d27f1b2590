// Streams put together again as clients do, into the shape of the whole answer.
#pragma once

#include <gtest/gtest.h>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/json.h"

namespace invar {

struct SseEvent {
  std::string name;
  Json data;  // a string where it is no JSON
};

// Each event has one line of data, valid by itself; comments are left out.
inline std::vector<SseEvent> events_of(std::string_view stream) {
  std::vector<SseEvent> events;
  while (!stream.empty()) {
    const size_t end = stream.find("\n\n");
    EXPECT_NE(end, stream.npos) << "a stream ends with a blank line";
    if (end == stream.npos) break;
    std::string_view block = stream.substr(0, end);
    stream.remove_prefix(end + 2);
    SseEvent event;
    int data_lines = 0;
    for (size_t line_end; !block.empty(); block.remove_prefix(std::min(line_end + 1, block.size()))) {
      line_end = std::min(block.find('\n'), block.size());
      const std::string_view line = block.substr(0, line_end);
      if (line.starts_with("event: ")) event.name = line.substr(7);
      else if (line.starts_with("data: ")) {
        ++data_lines;
        auto json = parse_ordered_json(line.substr(6), "event");
        event.data = json ? json.take() : Json(std::string(line.substr(6)));
      } else {
        EXPECT_TRUE(line.starts_with(":")) << line;
      }
    }
    EXPECT_LE(data_lines, 1);
    if (data_lines == 1) events.push_back(std::move(event));
  }
  return events;
}

// For comparing: the order of keys means nothing.
inline nlohmann::json sorted(const Json& value) { return nlohmann::json::parse(json_text(value)); }

inline void append_text(Json& to, const Json& more) {
  if (more.is_null()) return;
  to = (to.is_null() ? std::string() : to.get<std::string>()) + more.get<std::string>();
}

// The chunks of one kind: same id, `usage` in the last, [DONE] behind it.
inline std::vector<Json> chunks_of(std::string_view stream) {
  std::vector<Json> chunks;
  for (SseEvent& e : events_of(stream)) {
    EXPECT_TRUE(e.name.empty());
    chunks.push_back(std::move(e.data));
  }
  EXPECT_FALSE(chunks.empty());
  if (chunks.empty()) return chunks;
  EXPECT_EQ(chunks.back(), "[DONE]");
  chunks.pop_back();
  for (const Json& c : chunks)
    for (const char* key : {"id", "created", "model", "object"}) EXPECT_EQ(c[key], chunks[0][key]);
  return chunks;
}

inline Json assembled_completion(std::string_view stream) {
  Json whole;
  for (const Json& chunk : chunks_of(stream)) {
    if (whole.is_null()) whole = chunk, whole["choices"] = Json::array(), whole["usage"] = nullptr;
    if (!chunk.value("usage", Json()).is_null())
      whole["usage"] = chunk["usage"], whole["seed"] = chunk.value("seed", Json());
    for (const Json& part : chunk["choices"]) {
      const size_t index = part["index"];
      while (whole["choices"].size() <= index) whole["choices"].push_back(Json::object());
      Json& choice = whole["choices"][index];
      for (const auto& [key, value] : part.items()) {
        if (key == "text") append_text(choice[key], value);
        else if (key == "logprobs" && !value.is_null() && !choice.value(key, Json()).is_null())
          for (const auto& [list, entries] : value.items())
            for (const Json& entry : entries) choice[key][list].push_back(entry);
        else if (key == "token_ids" && choice.contains(key))
          for (const Json& id : value) choice[key].push_back(id);
        else choice[key] = value;
      }
    }
  }
  return whole;
}

inline Json assembled_chat(std::string_view stream) {
  Json whole;
  for (const Json& chunk : chunks_of(stream)) {
    if (whole.is_null()) {
      whole = chunk;
      whole["object"] = "chat.completion";
      whole["choices"] = Json::array();
    }
    if (!chunk.value("usage", Json()).is_null())
      whole["usage"] = chunk["usage"], whole["seed"] = chunk.value("seed", Json());
    for (const Json& part : chunk["choices"]) {
      const size_t index = part["index"];
      EXPECT_LE(index, whole["choices"].size() + 16);
      while (whole["choices"].size() <= index)
        whole["choices"].push_back(
            {{"index", whole["choices"].size()}, {"message", Json::object()}, {"logprobs", nullptr}});
      Json& choice = whole["choices"][index];
      Json& message = choice["message"];
      const Json& delta = part["delta"];
      if (message.empty()) {
        EXPECT_EQ(delta.value("role", ""), "assistant") << "the first delta has the role";
      }
      if (delta.contains("role")) message["role"] = delta["role"];
      if (!message.contains("content")) message["content"] = nullptr;
      for (const char* key : {"content", "reasoning_content", "reasoning"})
        if (delta.contains(key)) append_text(message[key], delta[key]);
      if (delta.contains("function_call"))
        for (const auto& [key, value] : delta["function_call"].items())
          append_text(message["function_call"][key], value);
      for (const Json& piece : delta.value("tool_calls", Json::array())) {
        const size_t at = piece["index"];
        Json& calls = message["tool_calls"];
        if (at == calls.size()) {
          EXPECT_TRUE(piece.contains("id") && piece["type"] == "function" &&
                      piece["function"].contains("name") && piece["function"].contains("arguments"));
          calls.push_back({{"id", piece["id"]}, {"type", "function"}, {"function", piece["function"]}});
        } else {
          EXPECT_EQ(at + 1, calls.size()) << "calls come one after the other";
          append_text(calls[at]["function"]["arguments"], piece["function"]["arguments"]);
        }
      }
      if (!part["logprobs"].is_null()) {
        if (choice["logprobs"].is_null())
          choice["logprobs"] = {{"content", Json::array()}, {"refusal", nullptr}};
        for (const Json& entry : part["logprobs"]["content"]) choice["logprobs"]["content"].push_back(entry);
      }
      if (!part["finish_reason"].is_null()) {
        EXPECT_FALSE(choice.contains("finish_reason"));
        choice["finish_reason"] = part["finish_reason"];
        choice["stop_reason"] = part["stop_reason"];
      }
    }
  }
  for (Json& choice : whole["choices"]) {
    Json& message = choice["message"];
    if (message.contains("tool_calls")) {  // a call that was cut off is in the stream alone
      const std::string arguments = message["tool_calls"].back()["function"]["arguments"];
      if (!parse_ordered_json(arguments, "arguments"))
        message["tool_calls"].erase(message["tool_calls"].size() - 1);
      if (message["tool_calls"].empty()) message.erase("tool_calls");
    }
    if (message["content"].is_null() && !message.contains("tool_calls") && !message.contains("function_call"))
      message["content"] = "";
    message["refusal"] = nullptr;
    message["annotations"] = Json::array();
  }
  return whole;
}

// Blocks open one at a time, in order; deltas fit the block.
inline Json assembled_message(std::string_view stream) {
  Json whole;
  std::vector<std::string> inputs;
  bool open = false, ended = false;
  for (const SseEvent& e : events_of(stream)) {
    const Json& d = e.data;
    EXPECT_EQ(e.name, d["type"]);
    EXPECT_FALSE(ended) << e.name << " after message_stop";
    if (e.name == "ping") continue;
    if (e.name == "message_start") {
      EXPECT_TRUE(whole.is_null());
      whole = d["message"];
      EXPECT_TRUE(whole["stop_reason"].is_null() && whole["content"].empty());
    } else if (e.name == "content_block_start") {
      EXPECT_FALSE(std::exchange(open, true));
      EXPECT_EQ(d["index"], whole["content"].size());
      whole["content"].push_back(d["content_block"]);
      inputs.emplace_back();
    } else if (e.name == "content_block_delta") {
      EXPECT_TRUE(open && d["index"] == whole["content"].size() - 1);
      Json& block = whole["content"].back();
      const std::string type = d["delta"]["type"];
      if (type == "signature_delta") {
        block["signature"] = d["delta"]["signature"];
      } else if (type == "input_json_delta") {
        EXPECT_EQ(block["type"], "tool_use");
        inputs.back() += d["delta"]["partial_json"].get<std::string>();
      } else {
        const std::string kind = type.substr(0, type.find('_'));  // text or thinking
        EXPECT_EQ(block["type"], kind);
        append_text(block[kind], d["delta"][kind]);
      }
    } else if (e.name == "content_block_stop") {
      EXPECT_TRUE(std::exchange(open, false));
    } else if (e.name == "message_delta") {
      EXPECT_FALSE(open);
      whole.update(d["delta"]);
      whole["usage"] = d["usage"];
    } else {
      EXPECT_EQ(e.name, "message_stop");
      ended = true;
    }
  }
  EXPECT_TRUE(ended);
  Json content = Json::array();
  for (size_t i = 0; i < whole["content"].size(); ++i) {
    Json block = whole["content"][i];
    if (block["type"] == "tool_use") {
      auto input = parse_ordered_json(inputs[i].empty() ? "{}" : inputs[i], "input");
      if (!input) continue;  // cut off
      block["input"] = input.take();
    }
    content.push_back(block);
  }
  whole["content"] = content;
  return whole;
}

// The last event carries the whole; what came before is checked against it.
inline Json assembled_response(std::string_view stream) {
  const auto events = events_of(stream);
  Json items = Json::array(), whole;
  std::vector<std::string> texts;
  bool open = false;
  for (size_t i = 0; i < events.size(); ++i) {
    const Json& d = events[i].data;
    const std::string& name = events[i].name;
    EXPECT_EQ(name, d["type"]);
    EXPECT_EQ(d["sequence_number"], i);
    if (i < 2) { EXPECT_EQ(name, i == 0 ? "response.created" : "response.in_progress"); }
    if (name == "response.output_item.added") {
      EXPECT_FALSE(std::exchange(open, true));
      EXPECT_EQ(d["output_index"], items.size());
      items.push_back(d["item"]);
      texts.emplace_back();
    } else if (name == "response.output_item.done") {
      EXPECT_TRUE(std::exchange(open, false));
      EXPECT_EQ(d["item"]["id"], items.back()["id"]);
      EXPECT_EQ(d["output_index"], items.size() - 1);
      items.back() = d["item"];
    } else if (name.ends_with(".delta")) {
      EXPECT_EQ(d["item_id"], items.back()["id"]);
      texts.back() += d["delta"].get<std::string>();
    } else if (name.ends_with("_text.done")) {
      EXPECT_EQ(d["text"], texts.back());
    } else if (name == "response.function_call_arguments.done") {
      EXPECT_EQ(d["arguments"], texts.back());
    } else if (name == "response.completed" || name == "response.incomplete") {
      EXPECT_EQ(i + 1, events.size());
      whole = d["response"];
    }
  }
  EXPECT_FALSE(open);
  Json kept = Json::array();
  for (const Json& item : items)
    if (item["status"] != "incomplete" || !item.contains("call_id")) kept.push_back(item);
  EXPECT_EQ(sorted(kept), sorted(whole["output"])) << "items as they were done";
  return whole;
}

}  // namespace invar
