/* What the benchmarks share: words such as threads=2, and medians. */
#include "bench.h"

#include <lockstep/ops.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int value_read(const struct bench_key *key, const char *text, struct ls_error *error)
{
    char *end;
    if (key->text) {
        *key->text = text;
        return LS_OK;
    }
    errno = 0;
    long long value = key->of_name ? key->of_name(text) : strtoll(text, &end, 10);
    if (key->of_name && value < 0)
        return ls_error_set(error, LS_ECONFIG, "%s=%.80s: expected %s", key->name, text,
                            key->names);
    if (!key->of_name && (errno || *end || end == text || value < key->min || value > key->max))
        return ls_error_set(error, LS_ECONFIG, "%s=%.80s: expected a number from %ld to %ld",
                            key->name, text, (long)key->min, (long)key->max);
    *key->value = value;
    return LS_OK;
}

int bench_arithmetic_of_name(const char *name)
{
    for (int i = 0; i < LS_ARITHMETIC_COUNT; i++)
        if (!strcmp(name, ls_arithmetic_name((enum ls_arithmetic)i)))
            return i;
    return -1;
}

int bench_dtype_of_name(const char *name)
{
    static const struct {
        const char *name;
        enum ls_dtype dtype;
    } dtypes[] = {{"bf16", LS_BF16}, {"fp16", LS_F16}, {"fp32", LS_F32}};
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (!strcmp(name, dtypes[i].name))
            return dtypes[i].dtype;
    return -1;
}

int bench_args(const char *page, int argc, char **argv, const struct bench_key *keys,
               struct ls_error *error)
{
    struct cmd_args args;
    int status = cmd_args_read(&args, page, argc, argv, CMD_WORDS_MAX, error);
    for (int i = 0; i < args.words && !status; i++) {
        const struct bench_key *key = keys;
        size_t length = strcspn(args.word[i], "=");
        while (key->name && (strncmp(args.word[i], key->name, length) || key->name[length]))
            key++;
        status = key->name && args.word[i][length]
                     ? value_read(key, args.word[i] + length + 1, error)
                     : ls_error_set(error, LS_ECONFIG, "%.80s: expected %s", args.word[i],
                                    args.page->arguments);
    }
    return status;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    return count ? values[count / 2] : 0;
}

int bench_tokens(char *path, int64_t count, int64_t vocabulary, struct ls_error *error)
{
    int descriptor = mkstemp(path);
    FILE *file = descriptor >= 0 ? fdopen(descriptor, "wb") : NULL;
    if (!file)
        return ls_error_set(error, LS_EIO, "cannot make the token file %s", path);
    struct ls_philox_key key = ls_philox_key_of(1, "bench");
    for (int64_t i = 0; i < count; i++) {
        uint32_t counter[4] = {(uint32_t)i, 0, 0, 0}, bits[4];
        ls_philox(key, counter, bits);
        uint16_t token = (uint16_t)(bits[0] % (uint32_t)ls_min(vocabulary, 65536));
        fwrite(&token, sizeof token, 1, file);
    }
    return fclose(file) ? ls_error_set(error, LS_ENOSPC, "cannot write %s", path) : LS_OK;
}
