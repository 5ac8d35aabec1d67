/* A program with a loop of its own: no code here is a rank's. Two rank threads train a small model
 * on batches that the program makes, and write what they learnt: to count.
 *
 *   make examples && build/examples/own_loop
 *
 * The same orders in another layout give the same bits: the hash that is printed is always one. */
#include <lockstep/base/file.h>
#include <lockstep/session.h>

#include <stdio.h>
#include <string.h>

enum { SEQUENCES = 8, TOKENS = 16, VOCABULARY = 32, STEPS = 60 };

#define RUN "build/session-run" /* what an earlier start left there is removed */

static const char keys[] =
    "{\"keys\": {\"model\": {\"arch\": \"llama\", \"vocab\": 32, \"layers\": 2, \"channels\": 32,"
    "  \"heads\": 4, \"context\": 32}, \"data\": {\"sequence\": 16}, \"batch\": {\"global\": 8},"
    "  \"optim\": {\"lr\": 0.01}, \"train\": {\"steps\": 60, \"out\": \"" RUN "\","
    "  \"resume\": \"never\"}, \"parallel\": {\"dp\": 2, \"threads\": 1}}}";

/* Sequences that count upwards from anywhere. */
static void batch_make(int step, int32_t *inputs, int32_t *targets)
{
    for (int i = 0; i < SEQUENCES * TOKENS; i++) {
        inputs[i] = (7 * step + 3 * (i / TOKENS) + i % TOKENS) % VOCABULARY;
        targets[i] = (inputs[i] + 1) % VOCABULARY;
    }
}

static int train(struct ls_session *session, struct ls_error *error)
{
    int32_t inputs[SEQUENCES * TOKENS], targets[SEQUENCES * TOKENS];
    const struct ls_array arrays[] = {{"inputs", "i4", 2, {SEQUENCES, TOKENS}, inputs},
                                      {"targets", "i4", 2, {SEQUENCES, TOKENS}, targets}};
    int status = LS_OK;
    for (int step = 0; step < STEPS && !status; step++) {
        batch_make(step, inputs, targets);
        status = ls_session_call(session, "step", "{}", arrays, 2, error);
        if (!status && step % 20 == 0)
            printf("%s\n", ls_session_answer(session));
    }
    return status;
}

static int count(struct ls_session *session, struct ls_error *error)
{
    int32_t prompt[] = {3, 4, 5}, length[] = {3};
    const struct ls_array arrays[] = {{"ids", "i4", 2, {1, 3}, prompt},
                                      {"lengths", "i4", 1, {1}, length}};
    struct ls_array ids;
    int status =
        ls_session_call(session, "generate",
                        "{\"max_tokens\": 8, \"temperature\": 0, \"ends\": []}", arrays, 2, error);
    if (status || !ls_session_array(session, "ids", &ids))
        return status;
    for (int64_t i = 0; i < ids.shape[1]; i++)
        printf("%d ", ((const int32_t *)ids.data)[i]);
    printf("\n");
    return LS_OK;
}

int main(void)
{
    struct ls_session *session;
    struct ls_error error = {0};
    ls_directory_remove(RUN);
    int status = ls_session_new(&session, &error);
    if (!status)
        status = ls_session_call(session, "open", keys, NULL, 0, &error);
    if (!status)
        status = train(session, &error);
    if (!status)
        status = count(session, &error);
    if (!status)
        status = ls_session_call(session, "hash", "", NULL, 0, &error);
    if (!status)
        printf("%s\n", ls_session_answer(session));
    if (status)
        fprintf(stderr, "%s\n", error.text);
    ls_session_free(session);
    return ls_exit_code(status);
}
