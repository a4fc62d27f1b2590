#include "server/dialect.h"

namespace invar::server {
namespace {

bool takes(const Chat& chat, const std::vector<const char*>& roles) {
  ChatInput input;
  for (const char* role : roles) input.messages.push_back({{"role", role}, {"content", "-"}});
  return bool(chat.prompt_text(input));
}

bool demands_alternation(const Chat& chat) {
  return chat.has_template() && takes(chat, {"user"}) && !takes(chat, {"user", "user"});
}

}  // namespace

Result<std::unique_ptr<const Dialect>> Dialect::make(const Chat& chat, const std::string& chat_template,
                                                     const std::string& tool_parser,
                                                     const std::string& reasoning_parser) {
  const AnswerFormat format = TRY(answer_format(chat_template, tool_parser, reasoning_parser));
  GrammarCompiler grammars = TRY(GrammarCompiler::make(chat.tokenizer(), chat.stop()));
  std::unique_ptr<Dialect> d(new Dialect{format, demands_alternation(chat), std::move(grammars),
                                         std::make_unique<WorkThread>(), nullptr});
  d->constraints = std::make_unique<ConstraintMaker>(
      TRY(ConstraintMaker::make(chat.tokenizer(), d->format, chat.stop(), d->masks.get())));
  return std::unique_ptr<const Dialect>(std::move(d));
}

}  // namespace invar::server
