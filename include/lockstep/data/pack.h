/* lockstep/data/pack.h - which documents share a sequence: best-fit packing.
 *
 * Samples of T targets hold whole documents (data.packing=best_fit), chosen so that as few places
 * as possible stay empty. The choice is made once for a store and a length, and lies beside the
 * store as PREFIX.pack (src/data/pack_file.c has the format); ls_token_store_pack_best_fit reads
 * it.
 *
 * Source: Ding et al., "Fewer Truncations Improve Language Modeling", ICML 2024 (arXiv 2404.10830).
 * Everything here is Local.
 */
#ifndef LOCKSTEP_DATA_PACK_H
#define LOCKSTEP_DATA_PACK_H

#include <lockstep/base.h>

LS_C_BEGIN

enum { LS_PACK_SEQUENCE_MAX = 1 << 24 };

struct ls_pack_report {
    int64_t documents;     /* with a target: of two tokens or more */
    int64_t targets;       /* in all */
    int64_t samples;       /* of T places; samples * T - targets are padding */
    int64_t cut;           /* documents that are cut, because they have more than T targets */
    int64_t stream_cut;    /* documents that data.packing=stream cuts */
    int64_t order_samples; /* that data.packing=documents makes */
};
/* Packs the documents of one store (PREFIX, PREFIX.bin or PREFIX.idx) into samples of
 * sequence_tokens targets, 1 to LS_PACK_SEQUENCE_MAX, and writes PREFIX.pack.
 *
 * A document of n tokens has n - 1 targets. One of more than T is cut into pieces of T, each a
 * sample by itself, and a rest. Best-fit decreasing: documents and rests are taken by descending
 * targets, of equal ones in the order of the store; each goes to the sample with the least room
 * that it fits into, of equal ones to the one that was filled last; otherwise it begins a sample.
 * In a sample, documents come in the order of the store, and so do samples, by their first
 * document.
 *
 * Time O(N log T) for N documents. Memory: at most 36 bytes a document, and 12 a place of a
 * sequence.
 *
 * stop: when it becomes nonzero (NULL: never), the packing ends with LS_ESTOPPED. On failure
 * nothing is left, and an older PREFIX.pack stays. LS_EDATA: the format has no documents, or none
 * has two tokens. LS_ENOTSUP: 2^32 documents or more. */
int ls_store_pack(const char *store, int64_t sequence_tokens, const volatile int *stop,
                  struct ls_pack_report *report, struct ls_error *error);

LS_C_END
#endif
