package tapscope.agent;

import jakarta.servlet.DispatcherType;
import jakarta.servlet.FilterRegistration;
import jakarta.servlet.ServletContainerInitializer;
import jakarta.servlet.ServletContext;
import java.io.IOException;
import java.util.EnumSet;
import java.util.Set;

/** Puts the filter in front of every application of a container that has this jar among its libraries. */
public final class Initializer implements ServletContainerInitializer {
    @Override
    public void onStartup(Set<Class<?>> classes, ServletContext context) {
        if (!Recorder.enabled()) {
            return;
        }
        try {
            FilterRegistration.Dynamic filter = context.addFilter("tapscope", new RequestFilter());
            filter.setAsyncSupported(true);
            filter.addMappingForUrlPatterns(EnumSet.of(DispatcherType.REQUEST), false, "/*");
        } catch (IOException e) {
            // An application must not fail for want of a log.
            context.log("tapscope: no event monitor: " + e);
        }
    }
}
