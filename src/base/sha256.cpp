#include "base/sha256.h"

#include <openssl/evp.h>

#include "base/check.h"

namespace invar {

struct Sha256::State {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(evp); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  CHECK(state_->evp != nullptr && EVP_DigestInit_ex(state_->evp, EVP_sha256(), nullptr) == 1);
}
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;
Sha256::~Sha256() = default;

void Sha256::update(std::span<const std::byte> bytes) {
  CHECK(EVP_DigestUpdate(state_->evp, bytes.data(), bytes.size()) == 1);
}

Digest Sha256::finish() {
  Digest digest;
  unsigned length = 0;
  CHECK(EVP_DigestFinal_ex(state_->evp, digest.data(), &length) == 1 && length == digest.size());
  return digest;
}

Digest sha256(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

std::string hex(std::span<const uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const uint8_t b : bytes) {
    text += kDigits[b >> 4];
    text += kDigits[b & 15];
  }
  return text;
}

}  // namespace invar
