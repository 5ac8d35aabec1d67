/* Kinds of work by name. */
#include <lockstep/ops.h>

#include <string.h>

static const char *const names[LS_WORK_KINDS] = {
    [LS_WORK_PRODUCT] = "product",
    [LS_WORK_PRODUCT_BT] = "product_bt",
    [LS_WORK_PRODUCT_AT] = "product_at",
    [LS_WORK_ATTENTION] = "attention",
    [LS_WORK_ATTENTION_BACKWARD] = "attention_backward",
    [LS_WORK_NORM] = "norm",
    [LS_WORK_NORM_BACKWARD] = "norm_backward",
    [LS_WORK_COLUMN_SUM] = "column_sum",
    [LS_WORK_ACTIVATION] = "activation",
    [LS_WORK_ACTIVATION_BACKWARD] = "activation_backward",
    [LS_WORK_ADD] = "add",
    [LS_WORK_DROPOUT] = "dropout",
    [LS_WORK_ROPE] = "rope",
    [LS_WORK_EMBEDDING] = "embedding",
    [LS_WORK_EMBEDDING_BACKWARD] = "embedding_backward",
    [LS_WORK_LOSS] = "loss",
    [LS_WORK_UPDATE] = "update",
    [LS_WORK_SQUARES] = "squares",
    [LS_WORK_CAST] = "cast",
    [LS_WORK_COPY] = "copy",
    [LS_WORK_FILL] = "fill",
};

const char *ls_work_name(enum ls_work_kind kind)
{
    return names[kind];
}

const char *ls_work_pass_name(enum ls_work_pass pass)
{
    static const char *const passes[LS_WORK_PASSES] = {[LS_WORK_PASS_NONE] = "other",
                                                       [LS_WORK_PASS_FORWARD] = "forward",
                                                       [LS_WORK_PASS_RECOMPUTE] = "recompute",
                                                       [LS_WORK_PASS_BACKWARD] = "backward",
                                                       [LS_WORK_PASS_INPUT] = "backward, input",
                                                       [LS_WORK_PASS_WEIGHTS] = "backward, weights",
                                                       [LS_WORK_PASS_REDUCE] = "reduce",
                                                       [LS_WORK_PASS_UPDATE] = "update"};
    return passes[pass];
}

int ls_work_of_name(const char *name)
{
    for (int kind = 0; kind < LS_WORK_KINDS; kind++)
        if (strcmp(names[kind], name) == 0)
            return kind;
    return -1;
}
