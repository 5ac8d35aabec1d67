/* Tokens for tests that train. */
#include "tokens.h"

#include "../support/scratch.h"

#include <lockstep/base.h>

#include <stdint.h>

int tokens_setup(void **state)
{
    enum { TOKENS = 6000 };
    if (scratch_setup(state))
        return -1;
    uint16_t tokens[TOKENS];
    for (uint32_t i = 0; i < TOKENS; i++) {
        uint32_t bits[4];
        ls_philox(ls_philox_key_of(5, "tokens"), (uint32_t[4]){i, 0, 0, 0}, bits);
        tokens[i] = (uint16_t)((bits[0] % 50) * (bits[1] % 50) / 50);
    }
    scratch_write(scratch_path(*state, "tokens.bin"), tokens, sizeof tokens);
    scratch_write(scratch_path(*state, "valid.bin"), tokens, sizeof tokens);
    return 0;
}
