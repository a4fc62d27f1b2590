// Stands in until the adapters are here.
#include "server/server.h"

namespace invar::server {
void add_completions(Router&, Served&) {}
void add_chat(Router&, Served&) {}
void add_responses(Router&, Served&) {}
void add_messages(Router&, Served&) {}
}  // namespace invar::server
