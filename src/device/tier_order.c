/* The order of a memory tier: what a transfer has to wait for. */
#include "device/tier_private.h"

static bool overlap(size_t a, size_t a_bytes, size_t b, size_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

/* Whether b must not begin before a, which was started earlier, has ended: they share a range that
 * one of them changes, in the tier or on the device. */
static bool behind(const struct tier_transfer *a, const struct tier_transfer *b)
{
    bool in_tier = overlap(a->offset, a->bytes, b->offset, b->bytes);
    bool on_device = overlap((uintptr_t)a->device, a->bytes, (uintptr_t)b->device, b->bytes);
    return (in_tier && (a->writes || b->writes)) || (on_device && !(a->writes && b->writes));
}

bool tier_may_begin(const struct ls_tier *tier, const struct tier_transfer *transfer)
{
    for (const struct tier_transfer *other = tier->first; other != transfer; other = other->next)
        if (behind(other, transfer))
            return false;
    return true;
}
