// The functions that XLA calls for products and attention, and the registration of all functions.

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "attend.h"
#include "clock.h"
#include "handlers.h"
#include "multiply.h"
#include "tokens.h"

namespace shaperouter {
namespace {

std::optional<WeightType> TypeOf(const ffi::AnyBuffer& weights) {
  switch (weights.element_type()) {
    case ffi::F32:
      return WeightType::kFloat32;
    case ffi::BF16:
      return WeightType::kBFloat16;
    case ffi::S8:
      return WeightType::kInt8;
    case ffi::U8:
      return WeightType::kInt4;
    default:
      return std::nullopt;
  }
}

// A stack of packed matrices: [L, panels, ...].
bool ArePanels(const ffi::AnyBuffer& weights, WeightType type, int64_t inputs) {
  const auto dimensions = weights.dimensions();
  if (type == WeightType::kInt4) {
    return dimensions.size() == 5 && dimensions[2] == static_cast<int64_t>(BlockCount(inputs)) &&
           dimensions[3] * dimensions[4] == static_cast<int64_t>(kBlockBytes);
  }
  if (type == WeightType::kBFloat16) {
    return dimensions.size() == 5 && dimensions[2] == static_cast<int64_t>(PairCount(inputs)) &&
           dimensions[3] == kPanelColumns && dimensions[4] == kPair;
  }
  if (type == WeightType::kInt8) {
    return dimensions.size() == 5 && dimensions[2] == static_cast<int64_t>(QuadCount(inputs)) &&
           dimensions[3] == kPanelColumns && dimensions[4] == kQuad;
  }
  return dimensions.size() == 4 && dimensions[2] == inputs && dimensions[3] == kPanelColumns;
}

// The index of a layer, clamped to the stack as in XLA's own slices.
size_t LayerOf(const Index& layer, int64_t layers) {
  return std::clamp<int64_t>(*layer.typed_data(), 0, layers - 1);
}

// One matrix of a stack.
const void* PanelsOf(const ffi::AnyBuffer& weights, const Index& layer) {
  const int64_t layers = weights.dimensions()[0];
  return static_cast<const char*>(weights.untyped_data()) +
         weights.size_bytes() / layers * LayerOf(layer, layers);
}

// Multiplies x [M, I] by one layer's weights, with scales and bias of [O] or [0]; see `Product`.
// The results are [M, O] and scratch memory. activation: Number of an Activation.
ffi::Error Linear(XlaPool pool, Matrix x, ffi::AnyBuffer weights, Index layer, Floats scales,
                  Floats bias, Counts count, ffi::Result<Matrix> out,
                  ffi::Result<Matrix> arranged, int32_t activation) {
  const int64_t rows = x.dimensions()[0], inputs = x.dimensions()[1];
  const int64_t columns = out->dimensions()[1];
  const auto type = TypeOf(weights);
  if (!type || inputs == 0 || !ArePanels(weights, *type, inputs) ||
      weights.dimensions()[0] == 0 ||
      weights.dimensions()[1] != static_cast<int64_t>(PanelCount(columns)) ||
      !IsColumnsOrNone(scales, columns) || !IsColumnsOrNone(bias, columns) ||
      out->dimensions()[0] != rows || arranged->dimensions()[0] != rows ||
      arranged->dimensions()[1] != static_cast<int64_t>(RowSize(*type, inputs)) ||
      activation < 0 || activation > static_cast<int32_t>(Activation::kSilu)) {
    return ffi::Error::InvalidArgument("linear: operands and results do not fit together");
  }
  const Product product{static_cast<size_t>(RowsOf(count, rows)),
                        static_cast<size_t>(inputs),
                        static_cast<size_t>(columns),
                        x.typed_data(),
                        PanelsOf(weights, layer),
                        *type,
                        OrNull(scales),
                        OrNull(bias),
                        static_cast<Activation>(activation),
                        arranged->typed_data(),
                        out->typed_data()};
  Multiply(product, ChosenKernels(), AsPool(pool));
  return ffi::Error::Success();
}

// Computes attention of queries [R, H * G, Q, D] over one layer's keys and values [R, L, H, T, D],
// which are floats or, as integers of 16 bits, bfloat16 numbers, before the ends [R], with optional
// starts [R], counts of needed queries [R], visible positions [R, Q, T] and bias [R, H * G, Q, T].
// The results are [R, H * G, Q, D] and scratch memory [R, H * G, Q, T].
ffi::Error AttendHeads(XlaPool pool, Heads query, ffi::AnyBuffer keys, ffi::AnyBuffer values,
                       Index layer, Counts starts, Counts ends, Counts counts,
                       ffi::Buffer<ffi::PRED> visible, Floats bias, ffi::Result<Heads> out,
                       ffi::Result<Heads> shares, float scale, float cap, bool causal) {
  const bool narrow = keys.element_type() == ffi::U16;
  if (keys.dimensions().size() != 5 || (!narrow && keys.element_type() != ffi::F32) ||
      values.element_type() != keys.element_type()) {
    return ffi::Error::InvalidArgument("attend: caches must be [R, L, H, T, D] of F32 or U16");
  }
  const auto of_query = query.dimensions(), of_keys = keys.dimensions();
  const int64_t rows = of_keys[0], layers = of_keys[1], heads = of_keys[2], length = of_keys[3];
  const int64_t size = of_keys[4], queries = of_query[2];
  const int64_t group = heads == 0 ? 0 : of_query[1] / heads;
  const int64_t seen = visible.element_count(), scores = rows * heads * group * queries * length;
  const int64_t first = starts.element_count(), biases = bias.element_count();
  const int64_t needed = counts.element_count();
  if (of_query[0] != rows || of_query[1] != heads * group || group == 0 || of_query[3] != size ||
      layers == 0 || !AreAlike(of_keys, values.dimensions()) || ends.dimensions()[0] != rows ||
      (first != 0 && first != rows) || (needed != 0 && needed != rows) ||
      (seen != 0 && seen != rows * queries * length) || (biases != 0 && biases != scores) ||
      out->element_count() != query.element_count() ||
      static_cast<int64_t>(shares->element_count()) != scores) {
    return ffi::Error::InvalidArgument("attend: operands and results do not fit together");
  }
  const size_t of_layer = heads * length * size;
  const size_t start = LayerOf(layer, layers) * of_layer * (narrow ? 2 : 4);  // bytes
  const Attention attention{static_cast<size_t>(rows),
                            static_cast<size_t>(heads),
                            static_cast<size_t>(group),
                            static_cast<size_t>(queries),
                            static_cast<size_t>(length),
                            static_cast<size_t>(size),
                            query.typed_data(),
                            static_cast<const char*>(keys.untyped_data()) + start,
                            static_cast<const char*>(values.untyped_data()) + start,
                            narrow,
                            layers * of_layer,
                            first == 0 ? nullptr : starts.typed_data(),
                            ends.typed_data(),
                            needed == 0 ? nullptr : counts.typed_data(),
                            causal,
                            seen == 0 ? nullptr : visible.typed_data(),
                            OrNull(bias),
                            scale,
                            cap,
                            shares->typed_data(),
                            out->typed_data()};
  Attend(attention, ChosenKernels(), AsPool(pool));
  return ffi::Error::Success();
}

// The starts of texts, [R + 1], must ascend from 0 to at most the tokens.
bool AreStarts(const Counts& starts, int64_t tokens) {
  const int32_t* const at = starts.typed_data();
  const int64_t count = starts.dimensions()[0];
  for (int64_t text = 0; text < count; ++text) {
    if (at[text] < (text == 0 ? 0 : at[text - 1]) || at[text] > tokens) return false;
  }
  return count > 0;
}

// Computes attention of the tokens of R texts, projected to [M, 3 * H * D], with the texts' starts
// [R + 1], and optional positions [M] and biases [H, 2 * reach + 1]. The results are [M, H * D] and
// scratch memory.
ffi::Error AttendTokens(XlaPool pool, Matrix projected, Counts starts, Counts positions,
                        Matrix biases, ffi::Result<Matrix> out, ffi::Result<Floats> sums,
                        int32_t heads, float scale) {
  const int64_t tokens = projected.dimensions()[0], width = projected.dimensions()[1] / 3;
  const int64_t texts = starts.dimensions()[0] - 1, distances = biases.dimensions()[1];
  const bool biased = biases.element_count() != 0;
  if (heads < 1 || projected.dimensions()[1] != 3 * width || width % heads != 0 || width == 0 ||
      width / heads > static_cast<int64_t>(kMostHeadSize) || texts < 0 ||
      (biased && (biases.dimensions()[0] != heads || distances % 2 != 1 ||
                  positions.dimensions()[0] != tokens)) ||
      out->dimensions()[0] != tokens || out->dimensions()[1] != width ||
      static_cast<int64_t>(sums->element_count()) != 2 * heads * tokens) {
    return ffi::Error::InvalidArgument("attend_tokens: operands and results do not fit together");
  }
  if (!AreStarts(starts, tokens)) {
    return ffi::Error::InvalidArgument("attend_tokens: starts must ascend from 0 to the tokens");
  }
  const TextAttention attention{static_cast<size_t>(texts),
                                static_cast<size_t>(tokens),
                                static_cast<size_t>(heads),
                                static_cast<size_t>(width / heads),
                                projected.typed_data(),
                                starts.typed_data(),
                                biased ? positions.typed_data() : nullptr,
                                biased ? biases.typed_data() : nullptr,
                                static_cast<size_t>(distances / 2),
                                scale,
                                sums->typed_data(),
                                out->typed_data()};
  AttendTexts(attention, ChosenKernels(), AsPool(pool));
  return ffi::Error::Success();
}

// Adds up the tokens [M, E] of each of R texts, by the texts' starts [R + 1]: [R, E].
ffi::Error Sum(XlaPool pool, Matrix x, Counts starts, ffi::Result<Matrix> out) {
  const int64_t tokens = x.dimensions()[0], width = x.dimensions()[1];
  if (out->dimensions()[1] != width || out->dimensions()[0] + 1 != starts.dimensions()[0] ||
      !AreStarts(starts, tokens)) {
    return ffi::Error::InvalidArgument("sum_tokens: operands and results do not fit together");
  }
  const TextSums sums{static_cast<size_t>(out->dimensions()[0]), static_cast<size_t>(width),
                      x.typed_data(), starts.typed_data(), out->typed_data()};
  SumTokens(sums, ChosenKernels(), AsPool(pool));
  return ffi::Error::Success();
}

// One weight of a panel.
float Weight(const void* weights, WeightType type, size_t panel, size_t inputs, size_t input,
             size_t column) {
  switch (type) {
    case WeightType::kFloat32:
      return static_cast<const float*>(weights)[(panel * inputs + input) * kPanelColumns + column];
    case WeightType::kBFloat16: {
      const size_t pair = panel * PairCount(inputs) + input / kPair;
      const uint16_t half = static_cast<const uint16_t*>(
          weights)[(pair * kPanelColumns + column) * kPair + input % kPair];
      const uint32_t bits = uint32_t{half} << 16;
      float value;
      std::memcpy(&value, &bits, sizeof value);
      return value;
    }
    case WeightType::kInt8: {
      const size_t quad = panel * QuadCount(inputs) + input / kQuad;
      return static_cast<const int8_t*>(
          weights)[(quad * kPanelColumns + column) * kQuad + input % kQuad];
    }
    case WeightType::kInt4:
      break;  // is refused
  }
  return 0;
}

// Looks up columns of weights: the inputs [I] of each id of [M]. So embeddings are held only once,
// in the layout that products with the whole matrix need.
ffi::Error LookUp(ffi::BufferR1<ffi::S32> ids, ffi::AnyBuffer weights, Floats scales,
                  ffi::Result<Matrix> out) {
  const int64_t inputs = out->dimensions()[1];
  const auto type = TypeOf(weights);
  const auto dimensions = weights.dimensions();
  if (!type || type == WeightType::kInt4 || !ArePanels(weights, *type, inputs) ||
      dimensions[0] != 1 || dimensions[1] == 0 ||
      out->dimensions()[0] != ids.dimensions()[0]) {
    return ffi::Error::InvalidArgument("look_up: operands and results do not fit together");
  }
  const int64_t filled = dimensions[1] * static_cast<int64_t>(kPanelColumns);
  const bool is_scaled = scales.element_count() != 0;
  const int64_t columns = is_scaled ? scales.element_count() : filled;
  if (columns > filled || columns == 0) {
    return ffi::Error::InvalidArgument("look_up: scales do not fit the weights");
  }
  for (int64_t row = 0; row < ids.dimensions()[0]; ++row) {
    // Indices out of bounds are clamped, as in XLA's own gather.
    const int64_t id = std::clamp<int64_t>(ids.typed_data()[row], 0, columns - 1);
    const size_t panel = id / kPanelColumns, column = id % kPanelColumns;
    const float scale = is_scaled ? scales.typed_data()[id] : 1.0f;
    float* to = out->typed_data() + row * inputs;
    for (int64_t input = 0; input < inputs; ++input) {
      to[input] = scale * Weight(weights.untyped_data(), *type, panel, inputs, input, column);
    }
  }
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER(kLinear, Linear,
                       ffi::Ffi::Bind()
                           .Ctx<XlaPool>()
                           .Arg<Matrix>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<Index>()
                           .Arg<Floats>()
                           .Arg<Floats>()
                           .Arg<Counts>()
                           .Ret<Matrix>()
                           .Ret<Matrix>()
                           .Attr<int32_t>("activation"));

XLA_FFI_DEFINE_HANDLER(kAttend, AttendHeads,
                       ffi::Ffi::Bind()
                           .Ctx<XlaPool>()
                           .Arg<Heads>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<Index>()
                           .Arg<Counts>()
                           .Arg<Counts>()
                           .Arg<Counts>()
                           .Arg<ffi::Buffer<ffi::PRED>>()
                           .Arg<Floats>()
                           .Ret<Heads>()
                           .Ret<Heads>()
                           .Attr<float>("scale")
                           .Attr<float>("cap")
                           .Attr<bool>("causal"));

XLA_FFI_DEFINE_HANDLER(kAttendTokens, AttendTokens,
                       ffi::Ffi::Bind()
                           .Ctx<XlaPool>()
                           .Arg<Matrix>()
                           .Arg<Counts>()
                           .Arg<Counts>()
                           .Arg<Matrix>()
                           .Ret<Matrix>()
                           .Ret<Floats>()
                           .Attr<int32_t>("heads")
                           .Attr<float>("scale"));

XLA_FFI_DEFINE_HANDLER(
    kSumTokens, Sum,
    ffi::Ffi::Bind().Ctx<XlaPool>().Arg<Matrix>().Arg<Counts>().Ret<Matrix>());

XLA_FFI_DEFINE_HANDLER(kLookUp, LookUp,
                       ffi::Ffi::Bind()
                           .Arg<ffi::BufferR1<ffi::S32>>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<Floats>()
                           .Ret<Matrix>());

}  // namespace
}  // namespace shaperouter

#define SHAPEROUTER_EXPORT extern "C" __attribute__((visibility("default")))

SHAPEROUTER_EXPORT int shaperouter_kernels_version() { return shaperouter::kVersion; }

// The instruction set in use.
SHAPEROUTER_EXPORT const char* shaperouter_kernels_name() {
  return shaperouter::ChosenKernels().name;
}

// Registers the handlers with the XLA that the API belongs to. Returns an error message or null.
SHAPEROUTER_EXPORT const char* shaperouter_kernels_register(const XLA_FFI_Api* api) {
  if (api->api_version.major_version != XLA_FFI_API_MAJOR ||
      api->api_version.minor_version < XLA_FFI_API_MINOR) {
    return "it was built for another version of XLA's FFI";
  }
  for (const auto& [name, handler] : {std::pair{"shaperouter_linear", shaperouter::kLinear},
                                      std::pair{"shaperouter_attend", shaperouter::kAttend},
                                      std::pair{"shaperouter_attend_tokens",
                                                shaperouter::kAttendTokens},
                                      std::pair{"shaperouter_sum_tokens", shaperouter::kSumTokens},
                                      std::pair{"shaperouter_look_up", shaperouter::kLookUp}}) {
    if (!shaperouter::Register(api, name, handler)) return "XLA refused its handlers";
  }
  if (!shaperouter::RegisterRows(api)) return "XLA refused its handlers";
  return shaperouter::RegisterClock(api) ? nullptr : "XLA refused its clock";
}
