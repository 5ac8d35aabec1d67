/* `lockstep plan --seconds S` searches for S, and for a fourth of it in all for context parallel,
 * however many numbers of tiles there are. Here a search takes all the time that it may, by a clock
 * that leaps. */
#include "../../cmd/cmd.h"
#include "../../cmd/planned_run.h"

#include "../support/config_words.h"
#include "../support/suite.h"
#include "../support/wrapped.h"

#include <lockstep/planner.h>

enum { SECONDS = 1000, SEARCHES = 10 /* without tiles, and with 2, 4, 8 ... 512 */ };

static double taken_s;
static int searches;
static int64_t left; /* layouts at the end of the time */

WRAPPED(ls_now_s);
double __wrap_ls_now_s(void)
{
    return taken_s;
}

WRAPPED(ls_search_run);
int __wrap_ls_search_run(const struct ls_search_options *options, struct ls_search *search,
                         struct ls_error *error)
{
    *search = (struct ls_search){.unproven = left};
    assert_true(options->seconds > 0);
    taken_s += options->seconds;
    searches++;
    return ls_error_set(error, LS_ELAYOUT, "no layout fits");
}

CASE(test_tiles_share_the_time)
{
    char *words[] = {"plan",
                     "configs/llama-1b.yaml",
                     "--cluster",
                     "clusters/h100-2048.yaml",
                     "--accelerators",
                     "512",
                     "--seconds",
                     "1000",
                     "model.context=65536",
                     "data.sequence=65536",
                     "batch.global=2",
                     NULL};
    int code;
    assert_true(cmd_run("plan", (int)(sizeof words / sizeof *words) - 1, words, &code));
    assert_int_equal(code, ls_exit_code(LS_ELAYOUT));
    assert_int_equal(searches, SEARCHES);
    assert_in_range(taken_s, SECONDS, SECONDS + SECONDS / 4);
}

/* A run that plans itself and finds nothing in its time says how to give it more. */
CASE(test_a_run_advises_more_time)
{
    for (left = 0; left < 2; left++) {
        struct ls_config config =
            config_of_words("model.preset=gpt2-tiny model.vocab=50 parallel.auto=true "
                            "train.plan=clusters/h100-2048.yaml");
        struct ls_error error = {0};
        assert_int_equal(planned_auto(&config, false, &error), LS_ELAYOUT);
        assert_text_contains(error.text, "no layout fits");
        assert_int_equal(strstr(error.text, "lockstep plan --seconds 80 --apply FILE") != NULL,
                         left);
    }
    left = 0;
}

SUITE_MAIN(NULL, NULL)
