// The list of weight formats and what is derived from it.  A new format is its file, and here its include and
// name.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <type_traits>

#include "formats/floats.h"
#include "formats/format.h"
#include "formats/fp4.h"
#include "formats/i8x32.h"
#include "formats/q2_k.h"
#include "formats/q3_k_q6_k.h"
#include "formats/q4_k_q5_k.h"
#include "formats/q4_q5.h"
#include "formats/q8_0.h"

namespace invar {

template <class... Fs>
struct List {
  static constexpr int size = sizeof...(Fs);
  template <class F>
  static constexpr int index() {
    int i = 0;
    (void)((std::is_same_v<F, Fs> || (++i, false)) || ...);
    return i;
  }
  template <class Fn>
  static constexpr void each(Fn fn) {
    (fn.template operator()<Fs>(), ...);
  }
};

using AllFormats =
    List<F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, MXFP4, NVFP4, I8x32>;

template <class F>
constexpr Format format_of = Format(AllFormats::index<F>());

constexpr auto kFormatTable = [] {
  std::array<FormatInfo, AllFormats::size> table{};
  AllFormats::each([&]<class F>() {
    table[size_t(format_of<F>)] = {F::name,
                                   F::gguf_id,
                                   F::block_values,
                                   int(sizeof(typename F::Block)),
                                   int(sizeof(typename F::Tile)),
                                   format_of<typename F::Activation>};
  });
  return table;
}();

constexpr const FormatInfo& info(Format format) { return kFormatTable[size_t(format)]; }

inline std::optional<Format> format_by_gguf_id(int id) {
  for (int i = 0; i < AllFormats::size; ++i)
    if (id >= 0 && kFormatTable[size_t(i)].gguf_id == id) return Format(i);
  return std::nullopt;
}

inline std::optional<Format> format_by_name(std::string_view name) {
  for (int i = 0; i < AllFormats::size; ++i)
    if (kFormatTable[size_t(i)].gguf_id >= 0 && name == kFormatTable[size_t(i)].name) return Format(i);
  return std::nullopt;
}

// Calls fn.operator()<F>() for the struct F of `format`.
template <class Fn>
void with_format(Format format, Fn fn) {
  AllFormats::each([&]<class F>() {
    if (format_of<F> == format) fn.template operator()<F>();
  });
}

}  // namespace invar
