#include "server/dialect.h"

namespace invar::server {

Result<std::unique_ptr<const Dialect>> Dialect::make(const Chat& chat, const std::string& chat_template,
                                                     const std::string& tool_parser,
                                                     const std::string& reasoning_parser) {
  const AnswerFormat format = TRY(answer_format(chat_template, tool_parser, reasoning_parser));
  GrammarCompiler grammars = TRY(GrammarCompiler::make(chat.tokenizer(), chat.stop()));
  std::unique_ptr<Dialect> d(
      new Dialect{format, std::move(grammars), std::make_unique<MaskThread>(), nullptr});
  d->constraints = std::make_unique<ConstraintMaker>(
      TRY(ConstraintMaker::make(chat.tokenizer(), d->format, chat.stop(), d->thread.get())));
  return std::unique_ptr<const Dialect>(std::move(d));
}

}  // namespace invar::server
