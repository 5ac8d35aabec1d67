/* Trains from other programs' models. */
#include "trained.h"

#include "../support/scratch.h"
#include "../support/suite.h"

#include <lockstep/ckpt.h>

#include <stdio.h>
#include <string.h>

enum { TOKENS = 2000, ROOM = 8192 };

/* Words with spaces between; %s in the first two is the directory. */
static const char common[] = "data.train=u16:%s/tokens.bin data.sequence=16 numerics.tp_tiles=2 "
                             "batch.global=4 parallel.threads=1 log.tensorboard=false "
                             "log.progress=off numerics.precision=fp32 optim.decay_steps=4 ";

static int train_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    return ls_run(user, world, NULL, NULL, error);
}

int train_config(const char *directory, const char *words, struct ls_config *config,
                 struct ls_error *error)
{
    char text[ROOM], *save = NULL;
    int used = snprintf(text, sizeof text, common, directory), status = LS_OK;
    snprintf(text + used, sizeof text - (size_t)used, "%s", words);
    ls_config_defaults(config);
    for (char *word = strtok_r(text, " ", &save); word && !status;
         word = strtok_r(NULL, " ", &save))
        status = ls_config_set(config, word, error);
    return status ? status : ls_train_resolve(config, error);
}

int train_words(const char *directory, const char *words, struct ls_error *error)
{
    struct ls_config config;
    int status = train_config(directory, words, &config, error);
    return status ? status
                  : ls_world_run((int)ls_config_ranks(&config), train_body, &config, error);
}

void train_refused(const char *directory, const char *words, const char *text)
{
    struct ls_error error = {0};
    char all[2 * ROOM];
    snprintf(all, sizeof all, "train.out=%s/none train.steps=1 %s", directory, words);
    int status = train_words(directory, all, &error);
    if (!status || !strstr(error.text, text))
        fail_msg("%s: expected %s, found %d: %s", words, text, status, error.text);
}

/* The hash of what a run ends with. */
const char *trained(const char *directory, const char *run, const char *format, ...)
{
    static char hashes[4][33];
    static int turn;
    char words[ROOM], out[4200];
    struct ls_error error = {0};
    struct ls_checkpoint *checkpoint;
    va_list args;
    int used = snprintf(words, sizeof words, "train.out=%s/%s ", directory, run);
    va_start(args, format);
    vsnprintf(words + used, sizeof words - (size_t)used, format, args);
    va_end(args);
    if (train_words(directory, words, &error))
        fail_msg("%s: %s", words, error.text);
    snprintf(out, sizeof out, "%s/%s", directory, run);
    assert_int_equal(ls_checkpoint_choose(&checkpoint, out, NULL, NULL, &error), LS_OK);
    snprintf(hashes[++turn % 4], sizeof hashes[0], "%s", checkpoint->state.hash);
    ls_checkpoint_close(checkpoint);
    return hashes[turn % 4];
}

int tokens_setup(void **state)
{
    uint16_t tokens[TOKENS];
    if (scratch_setup(state))
        return -1;
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = (uint16_t)(i * i % 61);
    scratch_write(scratch_path(*state, "tokens.bin"), tokens, sizeof tokens);
    return 0;
}
