package board;

import java.io.IOException;
import java.security.SecureRandom;
import java.sql.SQLException;
import java.util.HexFormat;
import java.util.List;

/** Pages of and about members. */
final class MemberPages {
    private static final SecureRandom RANDOM = new SecureRandom();

    private MemberPages() {
    }

    static void profile(Visit visit) throws SQLException, IOException {
        long user = visit.number("user", 1);
        List<Row> rows = visit.db.prepared("SELECT id, nick, karma, moderator, bio FROM users WHERE id = ? {id}", user);
        if (rows.isEmpty()) {
            throw new Visit.NotFound("no such user");
        }
        Row row = rows.get(0);
        visit.board.nicks.put(user, row.text("nick"));
        Page page = visit.page(row.text("nick")).body(row.text("bio"));
        List<Row> stories = visit.db.text("SELECT id, title, comments FROM stories WHERE author_id = ? AND status = 1"
                + " ORDER BY posted DESC LIMIT 4", user);
        for (Row story : stories) {
            page.link("story?story=" + story.number("id"), story.text("title"));
        }
        visit.db.endGroup();
        List<Row> comments = visit.db.prepared("SELECT id, story_id, subject, score FROM comments"
                + " WHERE author_id = ? {id} ORDER BY id DESC LIMIT 5", user);
        for (Row comment : comments) {
            List<Row> story = visit.db.text("SELECT title FROM stories WHERE id = ?", comment.number("story_id"));
            page.link("comment?comment=" + comment.number("id"), comment.text("subject"));
            page.line("in " + (story.isEmpty() ? "?" : story.get(0).text("title")));
        }
        if (row.number("moderator") == 1) {
            List<Row> verdicts = visit.db.text(
                    "SELECT COUNT(*) AS n FROM moderations WHERE moderator_id = ?", user);
            page.line("Moderator, " + verdicts.get(0).number("n") + " decisions");
        }
        visit.send(page);
    }

    static void author(Visit visit) throws SQLException, IOException {
        long user = visit.number("user", 1);
        long number = visit.number("page", 0);
        Page page = visit.page("Stories by " + visit.nick(user));
        List<Row> count = visit.db.text("SELECT COUNT(*) AS n, SUM(score) AS score FROM stories"
                + " WHERE author_id = ? AND status = 1", user);
        page.line(count.get(0).number("n") + " stories, score " + count.get(0).number("score"));
        List<Row> stories = visit.db.prepared("SELECT id, author_id, topic_id, title, comments FROM stories"
                + " WHERE author_id = ? {id} ORDER BY id DESC LIMIT ?, 6", user, number * 6);
        for (Row story : stories) {
            page.link("story?story=" + story.number("id"), story.text("title"));
            if (story.number("comments") > 0) {
                List<Row> last = visit.db.text("SELECT author_id, subject FROM comments WHERE story_id = ?"
                        + " ORDER BY id DESC LIMIT 1", story.number("id"));
                for (Row comment : last) {
                    page.line("last: " + comment.text("subject") + " by " + visit.nick(comment.number("author_id")));
                }
            }
        }
        visit.send(page);
    }

    static void inbox(Visit visit) throws SQLException, IOException {
        Row member = visit.requireMember();
        Page page = visit.page("Messages for " + member.text("nick"));
        List<Row> messages = visit.db.text("SELECT id, from_user, subject, seen FROM messages WHERE to_user = ?"
                + " ORDER BY id DESC LIMIT 8", member.number("user_id"));
        for (Row message : messages) {
            page.line(visit.nick(message.number("from_user")) + ": " + message.text("subject")
                    + (message.number("seen") == 0 ? " (new)" : ""));
        }
        visit.send(page);
    }

    static void watchlist(Visit visit) throws SQLException, IOException {
        Row member = visit.requireMember();
        Page page = visit.page("Watched by " + member.text("nick"));
        List<Row> watches = visit.db.prepared("SELECT story_id, seen_comments FROM watches WHERE user_id = ? {id}"
                + " ORDER BY story_id DESC LIMIT 8", member.number("user_id"));
        visit.db.endGroup();
        for (Row watch : watches) {
            List<Row> story = visit.db.text("SELECT id, title, author_id, comments FROM stories WHERE id = ?",
                    watch.number("story_id"));
            for (Row row : story) {
                page.link("story?story=" + row.number("id"), row.text("title"));
                long news = row.number("comments") - watch.number("seen_comments");
                if (news > 0) {
                    List<Row> newest = visit.db.prepared("SELECT author_id, subject FROM comments"
                            + " WHERE story_id = ? {id} ORDER BY id DESC LIMIT 1", row.number("id"));
                    for (Row comment : newest) {
                        page.line(news + " new, last " + comment.text("subject"));
                    }
                }
            }
        }
        visit.send(page);
    }

    /** Stories that wait for a moderator, each with what its author has done so far. */
    static void review(Visit visit) throws SQLException, IOException {
        Row member = visit.requireMember();
        Page page = visit.page("Waiting stories");
        List<Row> waiting = visit.db.text("SELECT id, author_id, title, LEFT(body, 200) AS lead FROM stories"
                + " WHERE status = 0 ORDER BY id LIMIT ?", member.number("moderator") == 1 ? 8 : 3);
        for (Row story : waiting) {
            page.heading(story.text("title")).body(story.text("lead"));
            List<Row> record = visit.db.prepared("SELECT COUNT(*) AS n, SUM(status) AS accepted FROM stories"
                    + " WHERE author_id = ? {id}", story.number("author_id"));
            page.line(visit.nick(story.number("author_id")) + ": " + record.get(0).number("n") + " stories");
        }
        visit.send(page);
    }

    static void login(Visit visit) throws SQLException, IOException {
        String nick = visit.text("nick", "");
        List<Row> rows = visit.db.text("SELECT id, nick, karma, moderator FROM users WHERE nick = ?"
                + " AND password = SHA1(?)", nick, visit.text("password", ""));
        if (rows.isEmpty()) {
            throw new Visit.Forbidden("wrong name or password");
        }
        byte[] bytes = new byte[8];
        RANDOM.nextBytes(bytes);
        String token = HexFormat.of().formatHex(bytes);
        long user = rows.get(0).number("id");
        visit.db.begin();
        visit.db.textUpdate("INSERT INTO sessions (token, user_id, started) VALUES (?, ?, NOW())", token, user);
        visit.db.preparedUpdate("UPDATE users SET last_login = NOW() WHERE id = ? {id}", user);
        visit.db.commit();
        visit.setSession(token);
        visit.redirect("front");
    }
}
