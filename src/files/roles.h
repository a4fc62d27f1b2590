// What a tensor is for, read off its GGUF name.
#pragma once

#include <string_view>

namespace invar {

// "embedding", "output", "norm", "attention", "recurrent", "mlp", "expert", "shared expert", "router", "mtp",
// "rope" or "other".  The architecture decides what a fused attn_qkv is.
const char* role_of(std::string_view architecture, std::string_view tensor_name);

}  // namespace invar
