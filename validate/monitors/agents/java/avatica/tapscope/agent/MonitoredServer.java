package tapscope.agent;

import java.io.IOException;
import javax.servlet.ServletException;
import javax.servlet.http.HttpServletRequest;
import javax.servlet.http.HttpServletResponse;
import org.apache.calcite.avatica.server.ServerCustomizer;
import org.eclipse.jetty.server.Request;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.handler.HandlerWrapper;

/**
 * Lets the stamps of {@link MonitoredService} stand where the HTTP request comes and its answer goes:
 * {@code withServerCustomizers(List.of(new MonitoredServer()), Server.class)}.
 */
public final class MonitoredServer implements ServerCustomizer<Server> {
    @Override
    public void customize(Server server) {
        if (!Recorder.enabled()) {
            return;
        }
        HandlerWrapper stamps = new HandlerWrapper() {
            @Override
            public void handle(String target, Request base, HttpServletRequest request, HttpServletResponse response)
                    throws IOException, ServletException {
                RemoteCall call = RemoteCall.begin();
                try {
                    super.handle(target, base, request, response);
                } finally {
                    call.end();
                }
            }
        };
        stamps.setHandler(server.getHandler());
        server.setHandler(stamps);
    }
}
