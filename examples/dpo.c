/* Direct preference optimization (Rafailov et al. 2023, arXiv 2305.18290) by weights of tokens.
 *
 *   make examples && build/examples/dpo                       pairs of its own, a small new model
 *   build/examples/dpo PAIRS 0.1 model.from=FOLDER ...        other pairs, beta, keys
 *
 * A pair is two texts, one after the other, the chosen one first. Each line of PAIRS is a text:
 * how many of its tokens are the prompt, then its token ids.
 *
 *   margin = beta * ((log p(chosen) - log q(chosen)) - (log p(rejected) - log q(rejected)))
 *   loss   = mean over pairs of -log sigmoid(margin)
 *
 * p is the model, q the one that training began with; log p of a text is the sum over the tokens
 * behind its prompt. The loss depends on p through these sums alone. So its gradient is that of a
 * sum of weighted losses of tokens, where the weight of a text's tokens is -d loss / d log p(text).
 * A step scores its texts, computes that weight of each in plain C, and gives the batch. Any
 * objective of log-probabilities can be trained like that, in any layout, with the same bits. */
#include <lockstep/config/inputs.h>
#include <lockstep/train.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXTS_MAX = 512, TOKENS_MAX = 512, LINE_MAX_BYTES = 8192 };

struct text {
    int32_t ids[TOKENS_MAX];
    int64_t count, prompt;
    float logprobs[TOKENS_MAX]; /* of each token, by the last scores */
    double first;               /* its log-probability before training */
};

struct dpo {
    struct ls_config config;
    double beta;
    bool saves; /* the model, into train.out */
    int count;  /* texts: twice the pairs */
    struct text texts[TEXTS_MAX];
};

/* ---- texts ----------------------------------------------------------------------------------- */

/* The chosen text ends with the tokens of its prompt, the rejected one with others. */
static void pairs_make(struct dpo *dpo)
{
    for (uint32_t i = 0; i < 16; i++) {
        struct text *text = &dpo->texts[dpo->count++];
        uint32_t bits[4];
        text->prompt = 6;
        text->count = 12;
        for (uint32_t t = 0; t < 12; t++) {
            ls_philox(ls_philox_key_of(1, "pairs"), (uint32_t[4]){i / 2, t, i % 2, 0}, bits);
            bool repeats = t >= 6 && i % 2 == 0;
            text->ids[t] = repeats ? text->ids[t - 6] : (int32_t)(bits[t < 6 ? 3 : 0] % 32);
            if (t < 6 && i % 2)
                text->ids[t] = text[-1].ids[t];
        }
    }
}

static int pairs_read(struct dpo *dpo, const char *path, struct ls_error *error)
{
    static char line[LINE_MAX_BYTES];
    FILE *file = fopen(path, "re");
    int status = file ? LS_OK : ls_error_set(error, LS_EIO, "%.300s: cannot be read", path);
    while (!status && fgets(line, sizeof line, file)) {
        struct text *text = &dpo->texts[dpo->count];
        char *at = line, *end = line;
        text->prompt = strtol(line, &at, 10);
        long id = strtol(at, &end, 10);
        for (; end != at && text->count < TOKENS_MAX; id = strtol(at, &end, 10)) {
            text->ids[text->count++] = id < 0 || id > INT32_MAX ? -1 : (int32_t)id;
            at = end;
        }
        dpo->count++;
        if (text->prompt < 1 || text->prompt >= text->count || *at != '\n' ||
            dpo->count == TEXTS_MAX)
            status = ls_error_set(error, LS_EDATA,
                                  "%.300s:%d: expected the length of a prompt and up to %d token "
                                  "ids, more than those of the prompt; of fewer than %d texts",
                                  path, dpo->count, TOKENS_MAX, TEXTS_MAX);
    }
    if (file)
        fclose(file);
    if (!status && (dpo->count == 0 || dpo->count % 2))
        status =
            ls_error_set(error, LS_EDATA, "%.300s: %d texts: expected pairs", path, dpo->count);
    return status;
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Collective. Log-probabilities of texts[count] by the model as it is. */
static int texts_score(struct ls_trainer *trainer, struct text *texts, int count,
                       struct ls_error *error)
{
    struct ls_scored scored[TEXTS_MAX];
    for (int i = 0; i < count; i++)
        scored[i] = (struct ls_scored){.ids = texts[i].ids,
                                       .count = texts[i].count,
                                       .first = texts[i].prompt,
                                       .logprobs = texts[i].logprobs};
    return ls_runner_score(ls_trainer_runner(trainer), scored, count, error);
}

static double logprob(const struct text *text)
{
    double sum = 0;
    for (int64_t t = text->prompt; t < text->count; t++)
        sum += (double)text->logprobs[t];
    return sum;
}

/* The mean loss of texts[count], and the weight of each: -d loss / d log p(text). */
static double weights_find(const struct dpo *dpo, const struct text *texts, int count,
                           double *weights)
{
    double loss = 0, pairs = count / 2;
    for (int i = 0; i < count; i += 2) {
        double chosen = logprob(&texts[i]) - texts[i].first;
        double rejected = logprob(&texts[i + 1]) - texts[i + 1].first;
        double margin = dpo->beta * (chosen - rejected);
        loss += log1p(exp(-fabs(margin))) + fmax(-margin, 0); /* -log sigmoid(margin) */
        weights[i] = dpo->beta / (1 + exp(margin)) / pairs;
        weights[i + 1] = -weights[i];
    }
    return loss / pairs;
}

/* Texts beside each other as a batch: targets are the tokens behind prompts. */
static void batch_fill(const struct text *texts, int count, const double *weights,
                       struct ls_given_batch *batch)
{
    int32_t *inputs = (int32_t *)(uintptr_t)batch->inputs;
    int32_t *targets = (int32_t *)(uintptr_t)batch->targets;
    float *of = (float *)(uintptr_t)batch->weights;
    for (int i = 0; i < count; i++)
        for (int64_t t = 0; t < batch->tokens; t++, inputs++, targets++, of++) {
            bool target = t + 1 >= texts[i].prompt && t + 1 < texts[i].count;
            *inputs = t < texts[i].count ? texts[i].ids[t] : 0;
            *targets = target ? texts[i].ids[t + 1] : -1;
            *of = (float)weights[i];
        }
}

/* On texts[count], the pairs of a batch. */
static int step(const struct dpo *dpo, struct ls_trainer *trainer, struct text *texts, int count,
                struct ls_given_batch *batch, double *loss, struct ls_error *error)
{
    double weights[TEXTS_MAX];
    struct ls_step_report report;
    int status = texts_score(trainer, texts, count, error);
    if (status)
        return status;
    *loss = weights_find(dpo, texts, count, weights);
    batch->sequences = count;
    batch_fill(texts, count, weights, batch);
    return ls_trainer_step_on(trainer, batch, &report, error);
}

/* ---- every rank runs this in a thread of its own --------------------------------------------- */

static int train(const struct dpo *dpo, struct ls_trainer *trainer, struct text *texts, bool tells,
                 struct ls_error *error)
{
    int64_t tokens = dpo->config.data.sequence, at = 0;
    int sequences = (int)ls_min(dpo->config.batch.global / 2 * 2, dpo->count);
    size_t room = (size_t)(sequences * tokens);
    int32_t *ids = calloc(2 * room, sizeof *ids);
    float *weights = calloc(room, sizeof *weights);
    struct ls_given_batch batch = {
        .tokens = tokens, .inputs = ids, .targets = ids + room, .weights = weights, .sum = true};
    int status = ids && weights ? LS_OK : ls_error_set(error, LS_ENOMEM, "no memory for a batch");
    if (!status)
        status = texts_score(trainer, texts, dpo->count, error);
    for (int i = 0; i < dpo->count; i++)
        texts[i].first = logprob(&texts[i]);
    for (int64_t i = 0; i < dpo->config.train.steps && !status; i++) {
        double loss = 0;
        if (at + sequences > dpo->count)
            at = 0;
        status = step(dpo, trainer, texts + at, sequences, &batch, &loss, error);
        at += sequences;
        if (!status && tells)
            printf("step %ld  loss %.9g\n", (long)i + 1, loss);
    }
    free(ids);
    free(weights);
    return status;
}

static int rank_main(struct ls_comm *comm, void *user, struct ls_error *error)
{
    const struct dpo *dpo = user;
    struct ls_trainer *trainer = NULL;
    struct ls_digest digest;
    char hash[33];
    bool first = ls_comm_rank(comm) == 0;
    struct text *texts = malloc(sizeof dpo->texts); /* scores are written to each rank's own */
    int status = texts ? LS_OK : ls_error_set(error, LS_ENOMEM, "no memory for texts");
    if (!status)
        memcpy(texts, dpo->texts, sizeof dpo->texts);
    if (!status)
        status = ls_trainer_new(&dpo->config, comm, NULL, &trainer, error);
    if (!status)
        status = train(dpo, trainer, texts, first, error);
    if (!status && dpo->saves)
        status = ls_trainer_save(trainer, error);
    if (!status)
        status = ls_trainer_hash(trainer, &digest, error);
    if (!status && first) {
        ls_digest_hex(&digest, hash);
        printf("hash %s\n", hash);
    }
    ls_trainer_free(trainer);
    free(texts);
    return status;
}

/* ---- the program ----------------------------------------------------------------------------- */

static const char *const keys[] = {
    "model.vocab=32",   "model.layers=2",   "model.channels=32", "model.heads=2",
    "data.sequence=16", "model.context=16", "batch.global=8",    "train.steps=20",
    "optim.lr=3e-3",    "parallel.dp=2",    "parallel.tp=2",
};

static int configure(struct dpo *dpo, int count, char **words, struct ls_error *error)
{
    int status = LS_OK;
    ls_config_defaults(&dpo->config);
    for (size_t i = 0; i < sizeof keys / sizeof *keys && count == 0 && !status; i++)
        status = ls_config_set(&dpo->config, keys[i], error);
    for (int i = 0; i < count && !status; i++)
        status = ls_config_set(&dpo->config, words[i], error);
    return status ? status : ls_train_resolve(&dpo->config, error);
}

int main(int count, char **words)
{
    struct ls_error error = {0};
    struct dpo *dpo = calloc(1, sizeof *dpo);
    if (!dpo)
        return perror("dpo"), 1;
    bool given = count > 2;
    dpo->saves = given;
    dpo->beta = given ? strtod(words[2], NULL) : 0.5;
    int status = given ? pairs_read(dpo, words[1], &error) : LS_OK;
    if (!given)
        pairs_make(dpo);
    if (!status)
        status = configure(dpo, given ? count - 3 : 0, words + 3, &error);
    if (!status && given && (status = ls_directory_make(dpo->config.train.out, NULL, &error)) == 0)
        status = ls_kept_write(&dpo->config, NULL, false, &error);
    if (!status)
        status = ls_world_run((int)ls_config_ranks(&dpo->config), rank_main, dpo, &error);
    if (status)
        fprintf(stderr, "%s\n", error.text);
    free(dpo);
    return status ? ls_exit_code(status) : 0;
}
