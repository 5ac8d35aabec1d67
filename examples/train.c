/* The whole training loop against the public headers.
 *
 *   make examples && build/examples/train
 *
 * It writes a small token file (a text of three words in random order), trains a small GPT-2 on it
 * with two rank threads, and saves a checkpoint. The losses and the hash are the same for any
 * number of ranks and any micro-batch: change parallel.dp and batch.micro and see. */
#include <lockstep/train.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const keys[] = {
    "model.vocab=128",  "model.layers=2",       "model.channels=64", "model.heads=4",
    "data.sequence=32", "model.context=32",     "batch.global=8",    "batch.micro=2",
    "train.steps=40",   "optim.warmup_steps=4", "optim.lr=3e-3",     "parallel.dp=2",
};

static const char *const words[] = {"lock", "step", "\n"};

/* ---- the loop: every rank runs this in a thread of its own ----------------------------------- */

static int rank_main(struct ls_comm *comm, void *user, struct ls_error *error)
{
    const struct ls_config *config = user;
    struct ls_trainer *trainer;
    struct ls_step_report report = {0};
    struct ls_digest digest;
    char hash[33];
    float first_loss = 0;
    int status = ls_trainer_new(config, comm, NULL, &trainer, error);
    while (!status && report.step < config->train.steps) {
        status = ls_trainer_step(trainer, &report, error);
        if (report.step == 1)
            first_loss = report.loss;
        if (!status && ls_comm_rank(comm) == 0 && report.step % 10 == 0)
            printf("step %ld  loss %.4f  (bits %08x)\n", (long)report.step, (double)report.loss,
                   report.loss_bits);
    }
    if (!status)
        status = ls_trainer_save(trainer, error);
    if (!status)
        status = ls_trainer_hash(trainer, &digest, error);
    if (!status && ls_comm_rank(comm) == 0) {
        ls_digest_hex(&digest, hash);
        printf("hash %s, saved after step %ld\n", hash, (long)report.step);
    }
    if (!status && !(report.loss < 0.5f * first_loss))
        status = ls_error_set(error, LS_ENUMERIC, "the loss fell only from %g to %g",
                              (double)first_loss, (double)report.loss);
    ls_trainer_free(trainer);
    return status;
}

int main(void)
{
    char folder[] = "/tmp/lockstep-example-XXXXXX", text[128];
    struct ls_error error = {0};
    struct ls_config config;
    snprintf(text, sizeof text, "%s/tokens.bin", mkdtemp(folder) ? folder : ".");
    FILE *file = fopen(text, "wb");
    for (uint32_t i = 0; i < 4000 && file; i++) {
        uint32_t bits[4];
        ls_philox(ls_philox_key_of(1, "words"), (uint32_t[4]){i, 0, 0, 0}, bits);
        for (const char *word = words[bits[0] % 3]; *word; word++)
            fwrite(&(uint16_t){(uint16_t)*word}, 2, 1, file); /* nanoGPT's format: uint16 */
    }
    if (!file || fclose(file))
        return perror(text), 1;

    ls_config_defaults(&config);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (ls_config_set(&config, keys[i], &error))
            return fprintf(stderr, "%s\n", error.text), 1;
    snprintf(config.data.train, sizeof config.data.train, "u16:%s", text);
    snprintf(config.train.out, sizeof config.train.out, "%s/run", folder);
    int status = ls_train_resolve(&config, &error);
    if (!status)
        status = ls_world_run((int)ls_config_ranks(&config), rank_main, &config, &error);
    if (status)
        fprintf(stderr, "%s\n", error.text);
    snprintf(text, sizeof text, "rm -r '%s'", folder); /* keep it to go on: train.resume=auto */
    if (system(text))
        fprintf(stderr, "%s was left behind\n", folder);
    return status ? ls_exit_code(status) : 0;
}
