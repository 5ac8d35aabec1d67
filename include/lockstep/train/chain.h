/* lockstep/train/chain.h - the chain of a run's records.
 *
 * The record of each step in metrics.jsonl has `chain`: the digest of what the step gave and of the
 * chain of the record before it. A record that is altered, removed, added or moved later does not
 * fit its neighbours. The digest is XXH3-128, which has no key: who computes the chain again from
 * there on is not found by it, but by computing the steps again (lockstep/compare.h).
 *
 * Everything here is Local. */
#ifndef LOCKSTEP_TRAIN_CHAIN_H
#define LOCKSTEP_TRAIN_CHAIN_H

#include <lockstep/base/linkage.h>

#include <stdint.h>

LS_C_BEGIN

/* What a step's record says of its bits. */
struct ls_chain_link {
    int64_t step;
    uint32_t loss_bits;
    double grad_norm;   /* which one, does not matter if it is not finite */
    const char *hash;   /* of the state; "" if the record has none */
    const char *ledger; /* of the samples; "" in records of earlier versions */
};
enum { LS_CHAIN_BYTES = 33 };
/* chain is that of the record before, "" at the first one, and becomes that of link: the XXH3-128,
 * in 32 hexadecimal digits, of the text "<chain before> <step> <loss bits, 8 digits> <bits of the
 * gradient norm, 16 digits, or null> <hash>" and, if there is one, " <ledger>". */
void ls_chain_add(char chain[LS_CHAIN_BYTES], const struct ls_chain_link *link);

LS_C_END
#endif
