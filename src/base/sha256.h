// SHA-256 digests (libcrypto behind it).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace invar {

using Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  ~Sha256();

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text))); }
  Digest finish();  // once; the object is spent afterwards

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Digest sha256(std::span<const std::byte> bytes);
std::string hex(std::span<const uint8_t> bytes);  // lower case

}  // namespace invar
