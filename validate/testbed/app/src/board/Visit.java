package board;

import jakarta.servlet.http.Cookie;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.sql.SQLException;
import java.util.List;

/** One request while it is being served: parameters, database, the member who asks, the answer. */
final class Visit {
    final Board board;
    final Db db;
    private final HttpServletRequest request;
    private final HttpServletResponse response;
    private boolean started;

    Visit(Board board, Db db, HttpServletRequest request, HttpServletResponse response) {
        this.board = board;
        this.db = db;
        this.request = request;
        this.response = response;
    }

    String text(String name, String fallback) {
        String value = request.getParameter(name);
        return value == null ? fallback : value;
    }

    long number(String name, long fallback) {
        String value = request.getParameter(name);
        if (value == null) {
            return fallback;
        }
        try {
            return Long.parseLong(value);
        } catch (NumberFormatException e) {
            throw new BadRequest("parameter " + name + " is not a number");
        }
    }

    Page page(String title) {
        return new Page(board.work, title);
    }

    /** The member behind the session cookie, or null. Sessions are cached for a few seconds. */
    Row member() throws SQLException {
        String token = cookie("sid");
        if (token == null) {
            return null;
        }
        Row known = board.sessions.get(token);
        if (known != null) {
            return known;
        }
        List<Row> rows = db.text("SELECT s.user_id, u.nick, u.karma, u.moderator FROM sessions s"
                + " JOIN users u ON u.id = s.user_id WHERE s.token = ?", token);
        if (rows.isEmpty()) {
            return null;
        }
        board.sessions.put(token, rows.get(0));
        return rows.get(0);
    }

    Row requireMember() throws SQLException {
        Row member = member();
        if (member == null) {
            throw new Forbidden("log in first");
        }
        return member;
    }

    private String cookie(String name) {
        Cookie[] cookies = request.getCookies();
        if (cookies != null) {
            for (Cookie cookie : cookies) {
                if (cookie.getName().equals(name)) {
                    return cookie.getValue();
                }
            }
        }
        return null;
    }

    void setSession(String token) {
        response.addHeader("Set-Cookie", "sid=" + token + "; Path=/board");
    }

    /** Nick of a user: from the cache, else one look-up. */
    String nick(long user) throws SQLException {
        String nick = board.nicks.get(user);
        if (nick == null) {
            List<Row> rows = db.prepared("SELECT nick FROM users WHERE id = ? {id}", user);
            nick = rows.isEmpty() ? "nobody" : rows.get(0).text("nick");
            board.nicks.put(user, nick);
        }
        return nick;
    }

    /** Sends what the page holds so far and goes on (the answer becomes chunked). */
    void sendPart(Page page) throws IOException {
        start();
        response.getOutputStream().write(page.take().getBytes(StandardCharsets.UTF_8));
        response.flushBuffer();
    }

    void send(Page page) throws IOException {
        byte[] bytes = page.finish().getBytes(StandardCharsets.UTF_8);
        if (!started) {
            start();
            response.setContentLength(bytes.length);
        }
        response.getOutputStream().write(bytes);
    }

    /** Answer to a form: sends the browser on to another page. */
    void redirect(String target) {
        response.setStatus(HttpServletResponse.SC_SEE_OTHER);
        response.setHeader("Location", "/board/" + target);
        response.setContentLength(0);
    }

    private void start() {
        if (!started) {
            response.setContentType("text/html;charset=UTF-8");
            started = true;
        }
    }

    static final class BadRequest extends RuntimeException {
        private static final long serialVersionUID = 1L;

        BadRequest(String message) {
            super(message);
        }
    }

    static final class Forbidden extends RuntimeException {
        private static final long serialVersionUID = 1L;

        Forbidden(String message) {
            super(message);
        }
    }

    static final class NotFound extends RuntimeException {
        private static final long serialVersionUID = 1L;

        NotFound(String message) {
            super(message);
        }
    }
}
