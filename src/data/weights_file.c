/* The weights of a store's tokens: PREFIX.weights has a float32 for each token of PREFIX.bin,
 * little-endian, without a header. The weight of a token multiplies its loss where it is a target.
 */
#include "data/weights_file.h"

#include <lockstep/base/words.h>

#include <math.h>

enum { PIECE = 4096 };

int data_weights_size(const char *name, int64_t bytes, int64_t tokens, struct ls_error *error)
{
    if (bytes % DATA_WEIGHT_BYTES == 0 && bytes / DATA_WEIGHT_BYTES == tokens)
        return LS_OK;
    return ls_error_set(error, LS_EDATA,
                        "%s: %lld bytes: the store has %lld tokens, and a float32 weight for each "
                        "takes %lld. Write the weights again, or remove the file to weigh all "
                        "tokens alike",
                        name, (long long)bytes, (long long)tokens,
                        (long long)tokens * DATA_WEIGHT_BYTES);
}

int data_weights_finite(const char *name, const float *weights, int64_t first, int64_t count,
                        struct ls_error *error)
{
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(weights[i]))
            return ls_error_set(error, LS_EDATA,
                                "%s: the weight of token %lld is %g: expected a finite number. "
                                "Write the weights again",
                                name, (long long)(first + i), ls_shown((double)weights[i]));
    return LS_OK;
}

int data_weights_read(struct data_file *file, data_file_reader *read, int64_t first, int64_t count,
                      float *weights, struct ls_error *error)
{
    int status = read(file, first * DATA_WEIGHT_BYTES, count * DATA_WEIGHT_BYTES, weights, error);
    return status ? status
                  : data_weights_finite(data_file_name(file), weights, first, count, error);
}

int data_weights_check(struct data_file *file, int64_t tokens, bool all, struct ls_error *error)
{
    float weights[PIECE];
    int status = data_weights_size(data_file_name(file), data_file_bytes(file), tokens, error);
    for (int64_t i = 0; i < tokens && all && !status; i += PIECE)
        status =
            data_weights_read(file, data_file_read, i, ls_min(PIECE, tokens - i), weights, error);
    return status;
}
