// The functions that XLA calls for rows: norms, embeddings, softmax, and the choice of tokens.

#include "choice.h"
#include "handlers.h"
#include "rows.h"

namespace shaperouter {
namespace {

// Normalizes the rows of x + y, [M, E]; see `Norm`. y is [0, E] if nothing is added; gain and bias
// are [E], or empty.
ffi::Error NormOf(XlaPool pool, Matrix x, Matrix y, Floats gain, Floats bias, Counts count,
                  ffi::Result<Matrix> out, float epsilon, bool centered) {
  const int64_t rows = x.dimensions()[0], width = x.dimensions()[1];
  const bool adds = y.dimensions()[0] != 0;
  if ((adds && !AreAlike(x.dimensions(), y.dimensions())) ||
      !AreAlike(x.dimensions(), out->dimensions()) || !IsColumnsOrNone(gain, width) ||
      !IsColumnsOrNone(bias, width) || width == 0) {
    return ffi::Error::InvalidArgument("norm: operands and results do not fit together");
  }
  const Norm norm{static_cast<size_t>(RowsOf(count, rows)),
                  static_cast<size_t>(width),
                  x.typed_data(),
                  adds ? y.typed_data() : nullptr,
                  OrNull(gain),
                  OrNull(bias),
                  epsilon,
                  centered,
                  out->typed_data()};
  Normalize(norm, ChosenKernels(), AsPool(pool));
  return ffi::Error::Success();
}

// Sums what softmax of the rows of x, [M, V], is computed from; see `SoftmaxSums`.
ffi::Error SumsOfSoftmax(XlaPool pool, Matrix x, ffi::Result<Matrix> out) {
  const int64_t rows = x.dimensions()[0], width = x.dimensions()[1];
  if (out->dimensions()[0] != rows ||
      out->dimensions()[1] != static_cast<int64_t>(SoftmaxSums::kCount) || width == 0) {
    return ffi::Error::InvalidArgument("softmax_sums: operands and results do not fit together");
  }
  const SoftmaxSums sums{static_cast<size_t>(rows), static_cast<size_t>(width), x.typed_data(),
                         out->typed_data()};
  SumSoftmax(sums, ChosenKernels(), AsPool(pool));
  return ffi::Error::Success();
}

// Looks up a row of each table, [N, E] or [0, E], by ids [M], adds them up and normalizes the sums;
// see `Embedding`. gain and bias are [E].
ffi::Error Embed(XlaPool pool, Matrix words, Counts word_ids, Matrix positions,
                 Counts position_ids, Matrix types, Counts type_ids, Floats gain, Floats bias,
                 Counts count, ffi::Result<Matrix> out, float epsilon) {
  const int64_t rows = out->dimensions()[0], width = out->dimensions()[1];
  Embedding embedding{static_cast<size_t>(RowsOf(count, rows)),
                      static_cast<size_t>(width),
                      {},
                      {},
                      {},
                      gain.typed_data(),
                      bias.typed_data(),
                      epsilon,
                      out->typed_data()};
  bool fits = width != 0 && static_cast<int64_t>(gain.element_count()) == width &&
              static_cast<int64_t>(bias.element_count()) == width;
  const std::pair<Matrix*, Counts*> operands[kTables] = {
      {&words, &word_ids}, {&positions, &position_ids}, {&types, &type_ids}};
  for (size_t at = 0; at < kTables; ++at) {
    const auto& [table, ids] = operands[at];
    const int64_t size = table->dimensions()[0];
    fits = fits && table->dimensions()[1] == width && (size > 0 || at > 0) &&
           (size == 0 || ids->dimensions()[0] == rows);
    embedding.tables[at] = size == 0 ? nullptr : table->typed_data();
    embedding.sizes[at] = static_cast<size_t>(size);
    embedding.ids[at] = ids->typed_data();
  }
  if (!fits) {
    return ffi::Error::InvalidArgument("embed: operands and results do not fit together");
  }
  EmbedTokens(embedding, ChosenKernels(), AsPool(pool));
  return ffi::Error::Success();
}

// What applies to rows: an operand [M] of any type.
template <class Buffer>
bool IsOfRows(const Buffer& values, int64_t rows) {
  return static_cast<int64_t>(values.element_count()) == rows;
}

// Truncates scores [M, V]; see `Truncation`. All other operands are [M]. The results are [M, V] and
// scratch memory.
ffi::Error TruncateScores(XlaPool pool, Matrix scores, Flags applies, Floats temperature,
                          Counts top_k, Floats top_p, Floats min_p, Floats typical_p,
                          Floats epsilon_cutoff, Floats eta_cutoff, Counts min_kept,
                          ffi::Result<Matrix> out, ffi::Result<Floats> work) {
  const int64_t rows = scores.dimensions()[0], width = scores.dimensions()[1];
  const auto room = static_cast<int64_t>(ScratchRoom(static_cast<size_t>(width)));
  bool fits = AreAlike(scores.dimensions(), out->dimensions()) && width != 0 &&
              IsOfRows(applies, rows) && IsOfRows(top_k, rows) && IsOfRows(min_kept, rows) &&
              static_cast<int64_t>(work->element_count()) == rows * 2 * room;
  for (const Floats* each :
       {&temperature, &top_p, &min_p, &typical_p, &epsilon_cutoff, &eta_cutoff}) {
    fits = fits && IsOfRows(*each, rows);
  }
  if (!fits) {
    return ffi::Error::InvalidArgument("truncate: operands and results do not fit together");
  }
  const Truncation truncation{static_cast<size_t>(rows),
                              static_cast<size_t>(width),
                              scores.typed_data(),
                              applies.typed_data(),
                              temperature.typed_data(),
                              top_k.typed_data(),
                              top_p.typed_data(),
                              min_p.typed_data(),
                              typical_p.typed_data(),
                              epsilon_cutoff.typed_data(),
                              eta_cutoff.typed_data(),
                              min_kept.typed_data(),
                              work->typed_data(),
                              out->typed_data()};
  Truncate(truncation, ChosenKernels(), AsPool(pool));
  return ffi::Error::Success();
}

// Adds noise to scores [M, V]; see `Perturbation`. seeds is [M, 2], the other operands are [M].
ffi::Error PerturbScores(XlaPool pool, Matrix scores, Flags applies, Seeds seeds, Counts positions,
                         ffi::Result<Matrix> out) {
  const int64_t rows = scores.dimensions()[0];
  if (!AreAlike(scores.dimensions(), out->dimensions()) || !IsOfRows(applies, rows) ||
      !IsOfRows(seeds, 2 * rows) || !IsOfRows(positions, rows)) {
    return ffi::Error::InvalidArgument("perturb: operands and results do not fit together");
  }
  const Perturbation perturbation{static_cast<size_t>(rows),
                                  static_cast<size_t>(scores.dimensions()[1]),
                                  scores.typed_data(),
                                  applies.typed_data(),
                                  seeds.typed_data(),
                                  positions.typed_data(),
                                  out->typed_data()};
  Perturb(perturbation, ChosenKernels(), AsPool(pool));
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER(kNorm, NormOf,
                       ffi::Ffi::Bind()
                           .Ctx<XlaPool>()
                           .Arg<Matrix>()
                           .Arg<Matrix>()
                           .Arg<Floats>()
                           .Arg<Floats>()
                           .Arg<Counts>()
                           .Ret<Matrix>()
                           .Attr<float>("epsilon")
                           .Attr<bool>("centered"));

XLA_FFI_DEFINE_HANDLER(kSoftmaxSums, SumsOfSoftmax,
                       ffi::Ffi::Bind().Ctx<XlaPool>().Arg<Matrix>().Ret<Matrix>());

XLA_FFI_DEFINE_HANDLER(kEmbed, Embed,
                       ffi::Ffi::Bind()
                           .Ctx<XlaPool>()
                           .Arg<Matrix>()
                           .Arg<Counts>()
                           .Arg<Matrix>()
                           .Arg<Counts>()
                           .Arg<Matrix>()
                           .Arg<Counts>()
                           .Arg<Floats>()
                           .Arg<Floats>()
                           .Arg<Counts>()
                           .Ret<Matrix>()
                           .Attr<float>("epsilon"));

XLA_FFI_DEFINE_HANDLER(kTruncate, TruncateScores,
                       ffi::Ffi::Bind()
                           .Ctx<XlaPool>()
                           .Arg<Matrix>()
                           .Arg<Flags>()
                           .Arg<Floats>()
                           .Arg<Counts>()
                           .Arg<Floats>()
                           .Arg<Floats>()
                           .Arg<Floats>()
                           .Arg<Floats>()
                           .Arg<Floats>()
                           .Arg<Counts>()
                           .Ret<Matrix>()
                           .Ret<Floats>());

XLA_FFI_DEFINE_HANDLER(kPerturb, PerturbScores,
                       ffi::Ffi::Bind()
                           .Ctx<XlaPool>()
                           .Arg<Matrix>()
                           .Arg<Flags>()
                           .Arg<Seeds>()
                           .Arg<Counts>()
                           .Ret<Matrix>());

}  // namespace

bool RegisterRows(const XLA_FFI_Api* api) {
  return Register(api, "shaperouter_norm", kNorm) &&
         Register(api, "shaperouter_softmax_sums", kSoftmaxSums) &&
         Register(api, "shaperouter_embed", kEmbed) &&
         Register(api, "shaperouter_truncate", kTruncate) &&
         Register(api, "shaperouter_perturb", kPerturb);
}

}  // namespace shaperouter
