/* One line that says how far a long work is. */
#include <lockstep/base/meter.h>

#include <lockstep/base/words.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define QUIET_S 2.0  /* what takes no longer is not shown */
#define LIVE_S  0.1  /* between two lines on a terminal */
#define LOG_S   10.0 /* and in a log */

/* Works follow each other; a thread that was given up may still tell of one. */
static struct {
    pthread_mutex_t lock;
    struct ls_meter_view view;
    double begin_s, shown_s; /* of the view; of the last line */
    char what[32];           /* of the work */
    double work_s;           /* when it was first told of, */
    int64_t work_done;       /* and how much was done then */
    bool open;               /* a live line stands */
} meter = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void put(const char *text)
{
    meter.view.write(meter.view.user, text, strlen(text));
}

static void clear(void)
{
    if (meter.open)
        put("\r\033[K");
    meter.open = false;
}

void ls_meter_show(const struct ls_meter_view *view)
{
    pthread_mutex_lock(&meter.lock);
    clear();
    meter.view = view ? *view : (struct ls_meter_view){0};
    meter.begin_s = meter.shown_s = ls_now_s();
    meter.what[0] = '\0';
    pthread_mutex_unlock(&meter.lock);
}

void ls_meter_clear(void)
{
    pthread_mutex_lock(&meter.lock);
    clear();
    meter.what[0] = '\0';
    pthread_mutex_unlock(&meter.lock);
}

static void line_make(char *line, size_t bytes, int64_t done, int64_t all, double now_s)
{
    snprintf(line, bytes, "%.40s: %lld", meter.view.title, (long long)done);
    if (all > 0)
        ls_string_add(line, bytes, " ", "of %lld", (long long)all);
    ls_string_add(line, bytes, " ", "%s", meter.what);
    if (all <= 0 || done <= meter.work_done)
        return;
    double left = (double)(all - done) * (now_s - meter.work_s) / (double)(done - meter.work_done);
    ls_string_add(line, bytes, "  ", "ETA %lld:%02lld", (long long)left / 60, (long long)left % 60);
}

static void line_show(int64_t done, int64_t all, double now_s)
{
    char line[160], text[200];
    bool live = meter.view.columns > 0;
    if (now_s - meter.begin_s < QUIET_S || now_s - meter.shown_s < (live ? LIVE_S : LOG_S))
        return;
    line_make(line, sizeof line, done, all, now_s);
    /* One column less than there are: a terminal that is full breaks the line by itself. */
    int fit = live ? (int)ls_columns_fit(line, meter.view.columns - 1) : (int)strlen(line);
    snprintf(text, sizeof text, live ? "\r%.*s\033[K" : "%.*s\n", fit, line);
    put(text);
    meter.shown_s = now_s;
    meter.open = live;
}

static void advance(const char *what, int64_t done, int64_t all)
{
    double now_s = ls_now_s();
    if (strcmp(what, meter.what) != 0) {
        snprintf(meter.what, sizeof meter.what, "%s", what);
        meter.work_s = now_s;
        meter.work_done = done;
    }
    if (all <= 0 || done < all) {
        line_show(done, all, now_s);
    } else {
        clear();
        meter.what[0] = '\0';
    }
}

void ls_meter(const char *what, int64_t done, int64_t all)
{
    ls_progress();
    pthread_mutex_lock(&meter.lock);
    if (meter.view.write)
        advance(what, done, all);
    pthread_mutex_unlock(&meter.lock);
}
