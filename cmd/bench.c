/* The frame of the benchmarks: words such as threads=2, tokens, turns. */
#include "bench.h"

#include <lockstep/base/median.h>
#include <lockstep/base/meter.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- words ----------------------------------------------------------------------------------- */

static int value_read(const struct bench_key *key, const char *text, struct ls_error *error)
{
    if (key->number)
        return cmd_int_read(key->name, text, key->min, key->max, key->number, error);
    if (key->word)
        return cmd_word_read(key->name, text, key->words, key->word, error);
    *key->text = text;
    return LS_OK;
}

int bench_args(const struct cmd_args *args, const struct bench_key *keys, struct ls_error *error)
{
    int status = LS_OK;
    for (int i = 0; i < args->words && !status; i++) {
        const struct bench_key *key = keys;
        const char *word = args->word[i];
        size_t length = strcspn(word, "=");
        while (key->name && (strncmp(word, key->name, length) || key->name[length]))
            key++;
        status = key->name && word[length] ? value_read(key, word + length + 1, error)
                                           : ls_error_set(error, LS_ECONFIG, "%.80s: expected %s",
                                                          word, args->page->arguments);
    }
    return status;
}

/* ---- data ------------------------------------------------------------------------------------ */

int bench_tokens(struct ls_config *config, char path[BENCH_PATH_BYTES], struct ls_error *error)
{
    struct ls_philox_key key = ls_philox_key_of(1, "bench");
    int64_t count = 4 * config->batch.global * config->data.sequence + 1;
    char folder[] = "/tmp/lockstep-bench-XXXXXX";
    if (!mkdtemp(folder))
        return ls_error_set(error, LS_EIO, "cannot make the folder %s", folder);
    snprintf(path, BENCH_PATH_BYTES, "%s/tokens", folder);
    FILE *file = fopen(path, "wb");
    if (!file)
        return ls_error_set(error, LS_EIO, "cannot make the token file %s", path);
    for (int64_t i = 0; i < count; i++) {
        uint32_t counter[4] = {(uint32_t)i, 0, 0, 0}, bits[4];
        ls_philox(key, counter, bits);
        uint16_t token = (uint16_t)(bits[0] % (uint32_t)ls_min(config->model.vocab, 65536));
        fwrite(&token, sizeof token, 1, file);
    }
    snprintf(config->data.train, sizeof config->data.train, "u16:%s", path);
    return fclose(file) ? ls_error_set(error, LS_ENOSPC, "cannot write %s", path) : LS_OK;
}

void bench_tokens_remove(char path[BENCH_PATH_BYTES])
{
    if (!*path)
        return;
    unlink(path);
    *strrchr(path, '/') = '\0';
    rmdir(path);
}

/* ---- turns ----------------------------------------------------------------------------------- */

int bench_turns(struct bench_turns *turns, struct ls_error *error)
{
    int status = LS_OK, first = turns->cold ? 0 : -1, done = 0;
    LS_ASSERT(turns->ways <= BENCH_WAYS_MAX && turns->rounds <= BENCH_ROUNDS_MAX);
    for (int round = first; round < turns->rounds && !status; round++)
        for (int way = 0; way < turns->ways && !status; way++) {
            double begin = ls_now_s(), counts = NAN;
            status = turns->run(turns->user, way, &counts, error);
            double taken = isnan(counts) ? ls_now_s() - begin : counts;
            turns->s[way][round < 0 ? 0 : round] = taken;
            if (turns->meter)
                ls_meter(turns->meter, ++done, turns->ways * (turns->rounds - first));
        }
    return status;
}

double bench_seconds(const struct bench_turns *turns, int way)
{
    double s[BENCH_ROUNDS_MAX];
    memcpy(s, turns->s[way], sizeof s);
    return ls_median(s, turns->rounds);
}

double bench_ratio(const struct bench_turns *turns, int way, int to)
{
    double ratio[BENCH_ROUNDS_MAX];
    for (int round = 0; round < turns->rounds; round++)
        ratio[round] = turns->s[way][round] / turns->s[to][round];
    return ls_median(ratio, turns->rounds);
}
