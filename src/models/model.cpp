#include "models/model.h"

namespace invar {

void Vocabulary::load(Loader& loader, int64_t vocab, int64_t hidden) {
  table = loader.table("token_embd", vocab, hidden);
  norm = loader.vector("output_norm.weight", hidden);
  if (loader.has("output.weight")) {
    head = loader.linear("output", vocab, hidden);
  } else {
    head = table;
    loader.count_read(head.w);
  }
}

Tensor Vocabulary::embed(Step& s, int64_t hidden) const {
  Tensor x = s.device.scratch(s.rows(), hidden);
  s.device.embed(table.w, table.scale, s.batch.tokens, x);
  return x;
}

Tensor Vocabulary::logits(Step& s, Tensor hidden, std::span<const int> rows) const {
  const auto n = int64_t(rows.size());
  Tensor x = s.device.scratch(n, hidden.cols), y = s.device.scratch(n, head.w.rows);
  s.device.gather(hidden, rows, x);
  s.device.matmul(x, {{{&head, y}}});
  return y;
}

Result<TableShape> table_shape(const Loader& loader) {
  const TensorEntry* t = loader.file().find("token_embd.weight");
  if (!t) return Error{Code::BadFile, "token_embd.weight", "expected this tensor, found none of that name"};
  auto agree = [&](const char* rest, int64_t wanted, const char* what, int64_t found) -> Status {
    if (found == wanted) return Ok{};
    return loader.keys().error(loader.file().arch_key(rest), "expected " + std::to_string(wanted) + ", the " +
                                                                 what + " of token_embd.weight, found " +
                                                                 std::to_string(found));
  };
  const Metadata& keys = loader.keys();
  TRY(agree("vocab_size", t->rows, "rows",
            TRY(keys.integer_or(loader.file().arch_key("vocab_size"), t->rows, 1, 1 << 22))));
  TRY(agree("embedding_length", t->cols, "columns",
            TRY(keys.integer(loader.file().arch_key("embedding_length"), 1, kMaxWidth))));
  return TableShape{t->rows, t->cols};
}

}  // namespace invar
