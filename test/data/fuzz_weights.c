/* A store's weights: any bytes, as those of a store of any number of tokens. */
#include "data/store_files.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ls_error error = {0};
    if (bytes < 2)
        return 0;
    int64_t tokens = data[0] % 3 ? (int64_t)(bytes - 2) / 4 : data[1];
    bool fits = (size_t)tokens * 4 == bytes - 2;
    int status = data_weights_size("x.weights", (int64_t)bytes - 2, tokens, &error);
    LS_ASSERT(status == (fits ? LS_OK : LS_EDATA) && (fits || error.text[0]));
    if (!fits)
        return 0;
    float *weights = malloc(bytes);
    if (!weights)
        return 0;
    memcpy(weights, data + 2, bytes - 2);
    bool finite = true;
    for (int64_t i = 0; i < tokens; i++)
        finite &= isfinite(weights[i]) != 0;
    status = data_weights_finite("x.weights", weights, 0, tokens, &error);
    LS_ASSERT(status == (finite ? LS_OK : LS_EDATA));
    free(weights);
    return 0;
}
