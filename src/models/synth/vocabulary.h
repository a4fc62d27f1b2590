// A byte-level vocabulary without merges for a model that was never trained: the 256 bytes, made-up pieces up
// to the size, the control tokens of the family where it has them, and a small ChatML template.
#pragma once

#include "files/metadata.h"
#include "models/synth/shapes.h"

namespace invar {

void add_vocabulary(const Shape& shape, Metadata& keys);  // tokenizer.*

}  // namespace invar
