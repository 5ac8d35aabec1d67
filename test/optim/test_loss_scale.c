/* The loss scale, step by step beside PyTorch's GradScaler and DeepSpeed's DynamicLossScaler
 * (test/golden/loss_scale.txt, by tools/golden_loss_scale.py). */
#include "../support/suite.h"

#include <lockstep/optim/loss_scale.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char golden_path[] = "test/golden/loss_scale.txt";

/* A rule of which one may be broken. */
typedef bool update(const struct ls_loss_scale_config *config, bool finite,
                    struct ls_loss_scale *scale);

/* Steps of a line that another rule takes otherwise; *steps += all of them. */
static int line_differences(char *line, update *rule, int *steps)
{
    char *rest = line, *who = strsep(&rest, " ");
    struct ls_loss_scale_config config = {.dynamic = true};
    config.initial = atof(strsep(&rest, " "));
    config.window = atoll(strsep(&rest, " "));
    config.hysteresis = atoll(strsep(&rest, " "));
    config.consecutive = atoi(strsep(&rest, " "));
    config.least = atof(strsep(&rest, " "));
    struct ls_loss_scale scale = ls_loss_scale_begin(&config);
    int wrong = strcmp(who, "torch") != 0 && strcmp(who, "deepspeed") != 0;
    for (char *step; (step = strsep(&rest, " ")); ++*steps) {
        bool goes_on = rule(&config, *step == '+', &scale);
        if (*step == '!' ? goes_on : !goes_on || scale.scale != atof(step + 1))
            wrong++;
    }
    return wrong;
}

static int differences(update *rule, int *lines, int *steps)
{
    char line[4096];
    int wrong = 0;
    FILE *file = fopen(golden_path, "r");
    assert_non_null(file);
    *lines = *steps = 0;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        if (*line == '#')
            continue;
        wrong += line_differences(line, rule, steps);
        ++*lines;
    }
    fclose(file);
    return wrong;
}

static bool without_hysteresis(const struct ls_loss_scale_config *config, bool finite,
                               struct ls_loss_scale *scale)
{
    scale->hysteresis = 1;
    return ls_loss_scale_update(config, finite, scale);
}
static bool counting_on(const struct ls_loss_scale_config *config, bool finite,
                        struct ls_loss_scale *scale)
{
    int64_t before = scale->good_steps;
    bool goes_on = ls_loss_scale_update(config, finite, scale);
    scale->good_steps = finite ? scale->good_steps : before;
    return goes_on;
}
static bool without_least(const struct ls_loss_scale_config *config, bool finite,
                          struct ls_loss_scale *scale)
{
    struct ls_loss_scale_config free_fall = *config;
    free_fall.least = 0;
    return ls_loss_scale_update(&free_fall, finite, scale);
}

CASE(test_as_pytorch_and_deepspeed)
{
    int lines, steps;
    assert_int_equal(differences(ls_loss_scale_update, &lines, &steps), 0);
    assert_true(lines == 96 && steps > 1500);
    assert_true(differences(without_hysteresis, &lines, &steps) > 0);
    assert_true(differences(counting_on, &lines, &steps) > 0);
    assert_true(differences(without_least, &lines, &steps) > 0);
}

CASE(test_a_static_scale_stays)
{
    const struct ls_loss_scale_config config = {.initial = 100};
    struct ls_loss_scale scale = ls_loss_scale_begin(&config);
    assert_true(ls_loss_scale_update(&config, true, &scale));
    assert_false(ls_loss_scale_update(&config, false, &scale));
    assert_true(scale.scale == 100);
}

CASE(test_it_stays_a_number)
{
    const struct ls_loss_scale_config config = {true, 0x1p16, 1, 1, false, 1};
    struct ls_loss_scale scale = ls_loss_scale_begin(&config);
    for (int i = 0; i < 5000; i++)
        assert_true(ls_loss_scale_update(&config, true, &scale));
    assert_true(scale.scale > 0x1p100 && scale.scale < 0x1p127);
}

SUITE_MAIN(NULL, NULL)
