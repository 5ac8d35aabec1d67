/* The chain of a run's records. */
#include <lockstep/train/chain.h>

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

void ls_chain_add(char chain[LS_CHAIN_BYTES], const struct ls_chain_link *link)
{
    char text[200], norm[17] = "null";
    uint64_t bits;
    XXH128_canonical_t canonical;
    memcpy(&bits, &link->grad_norm, sizeof bits);
    if (isfinite(link->grad_norm))
        snprintf(norm, sizeof norm, "%016llx", (unsigned long long)bits);
    snprintf(text, sizeof text, "%.32s %lld %08x %s %.32s%s%.32s", chain, (long long)link->step,
             link->loss_bits, norm, link->hash, *link->ledger ? " " : "", link->ledger);
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(text, strlen(text)));
    for (size_t i = 0; i < sizeof canonical.digest; i++)
        snprintf(chain + 2 * i, 3, "%02x", canonical.digest[i]);
}
