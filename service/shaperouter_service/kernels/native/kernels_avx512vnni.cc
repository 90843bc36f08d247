// For x86 with AVX-512 and its instructions for bytes (VNNI): 32 registers of sixteen floats. Also
// for processors with tiles (AMX). Products of bfloat16 that tiles cannot take are widened, which
// is faster on these processors than their instruction for pairs.

#include "kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vnni,amx-int8"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512vnni")
#endif

namespace {
constexpr size_t kLanes = 16;
constexpr size_t kSums = 24;
constexpr size_t kBlockRows = 12;
}  // namespace

#include "vnni.inc"
#include "widening.inc"
#include "kernels.inc"
#include "tiles.inc"

#if defined(__clang__)
#pragma clang attribute pop
#endif

const shaperouter::Kernels shaperouter::kAvx512VnniKernels = {
    "avx512vnni", Blocks, Arrange, Multiply, Attend, AttendTextHeads,
    NormalizeRows, EmbedRows, SumSoftmaxRows, TruncateRows, PerturbPieces, SumTextRows};

const shaperouter::Kernels shaperouter::kAmxKernels = {
    "amx", BlocksForTiles, ArrangeForTiles, MultiplyWithTiles, Attend, AttendTextHeads,
    NormalizeRows, EmbedRows, SumSoftmaxRows, TruncateRows, PerturbPieces, SumTextRows};

#endif
