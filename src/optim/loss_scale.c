/* The scale of the loss, step by step. */
#include <lockstep/optim/loss_scale.h>

/* Doubling stops here: the scale stays a number. */
#define SCALE_MOST 0x1p120

struct ls_loss_scale ls_loss_scale_begin(const struct ls_loss_scale_config *config)
{
    return (struct ls_loss_scale){.scale = config->initial, .hysteresis = config->hysteresis};
}

static bool overflowed(const struct ls_loss_scale_config *config, struct ls_loss_scale *scale)
{
    scale->good_steps = 0;
    if (scale->hysteresis > 1) {
        scale->hysteresis--;
        return true;
    }
    bool falls = scale->scale > config->least;
    double half = scale->scale / 2;
    scale->scale = half > config->least ? half : config->least;
    return falls;
}

bool ls_loss_scale_update(const struct ls_loss_scale_config *config, bool finite,
                          struct ls_loss_scale *scale)
{
    if (!config->dynamic)
        return finite;
    if (!finite)
        return overflowed(config, scale);
    scale->good_steps++;
    bool grows = scale->good_steps % config->window == 0;
    if (grows || config->consecutive)
        scale->hysteresis = config->hysteresis;
    if (grows && scale->scale < SCALE_MOST)
        scale->scale *= 2;
    return true;
}
