#include "fuzz/adapter_targets.h"

namespace invar {
namespace {

class Silent : public Service {  // bodies are read, nothing is asked
 public:
  Result<uint64_t> submit(Request) override { return Error{Code::Cancelled, "", "nothing is taken"}; }
  void cancel(uint64_t) override {}
  Statistics statistics() const override { return {}; }
  int64_t context() const override { return 4096; }
  int64_t vocab() const override { return 260; }
};

struct World {
  ModelFile file = ModelFile::open(INVAR_FUZZ_MODEL, Need::Header).take();
  Chat chat = Chat::make(file).take();
  Silent silent;
  Metrics metrics;
  server::Intake intake{silent, metrics, {}};
  WorkThread text;
  server::Served served{chat, intake, text, metrics, {}, {}};
};

}  // namespace
}  // namespace invar

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto* world = new invar::World;
  invar::fuzz_adapter(std::as_bytes(std::span(data, size)), world->served);
  return 0;
}
