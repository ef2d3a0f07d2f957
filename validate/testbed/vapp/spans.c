// Calls as spans. What notes them is a library of its own, so that vApp needs no tracer.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "spans.h"
#include "vapp.h"

static annotate_function* annotate;

void load_annotations(const char* library) {
    void* loaded = dlopen(library, RTLD_NOW);
    if (loaded != NULL) *(void**)&annotate = dlsym(loaded, "annotate");
    if (annotate == NULL) {
        fprintf(stderr, "vapp: %s\n", dlerror());
        exit(1);
    }
}

void note(const struct span* span, const char* event, const char* value) {
    if (annotate != NULL) annotate(span, settings.service, settings.name, event, value);
}

static long fresh(void) {
    long id = 0;
    while (id == 0)
        if (getrandom(&id, sizeof id, 0) != sizeof id) abort();
    return id;
}

struct span span_of(const struct message* request) {
    struct span span = {0, 0, 0};
    char text[64];
    if (annotate == NULL) return span;
    header(request, "X-Span", text, sizeof text);
    if (sscanf(text, "%lx.%lx.%lx", (unsigned long*)&span.trace, (unsigned long*)&span.id,
               (unsigned long*)&span.parent) != 3)
        span = (struct span){fresh(), fresh(), 0};
    return span;
}

struct span span_below(const struct span* span) {
    if (annotate == NULL) return *span;
    return (struct span){span->trace, fresh(), span->id};
}

void span_header(const struct span* span, char* line, size_t room) {
    line[0] = 0;
    if (annotate != NULL)
        snprintf(line, room, "X-Span: %lx.%lx.%lx\r\n", (unsigned long)span->trace, (unsigned long)span->id,
                 (unsigned long)span->parent);
}
