package board;

import java.io.IOException;
import java.sql.SQLException;
import java.util.List;

/** The four forms that change the board, each in one transaction. */
final class WriteForms {
    private WriteForms() {
    }

    static void postComment(Visit visit) throws SQLException, IOException {
        Row member = visit.requireMember();
        long user = member.number("user_id");
        long story = visit.number("story", 1);
        long parent = visit.number("parent", 0);
        List<Row> rows = visit.db.prepared("SELECT id, author_id, title FROM stories WHERE id = ? AND status = 1 {id}",
                story);
        if (rows.isEmpty()) {
            throw new Visit.NotFound("no such story");
        }
        if (parent != 0) {
            List<Row> above = visit.db.prepared(
                    "SELECT id, author_id FROM comments WHERE id = ? AND story_id = ? {id}", parent, story);
            if (above.isEmpty()) {
                parent = 0;
            }
        }
        visit.db.begin();
        visit.db.textUpdate("INSERT INTO comments (story_id, parent_id, author_id, posted, subject, body, score)"
                + " VALUES (?, ?, ?, NOW(), ?, ?, 0)", story, parent, user,
                visit.text("subject", "Re"), visit.text("body", ""));
        long comment = visit.db.lastInsertId();
        visit.db.preparedUpdate("UPDATE stories SET comments = comments + 1 WHERE id = ? {id}", story);
        visit.db.preparedUpdate("UPDATE users SET karma = karma + 1 WHERE id = ? {id}", user);
        List<Row> watchers = visit.db.text("SELECT user_id FROM watches WHERE story_id = ? AND user_id <> ? LIMIT 4",
                story, user);
        for (Row watcher : watchers) {
            visit.db.preparedUpdate("INSERT INTO messages (to_user, from_user, sent, subject, seen)"
                    + " SELECT ?, ?, NOW(), ?, 0 FROM DUAL WHERE 1 = 1 {id}",
                    watcher.number("user_id"), user, "New comment " + comment + " on " + rows.get(0).text("title"));
        }
        visit.db.commit();
        visit.redirect("comment?comment=" + comment);
    }

    static void submitStory(Visit visit) throws SQLException, IOException {
        Row member = visit.requireMember();
        long user = member.number("user_id");
        long topic = visit.number("topic", 1);
        String title = visit.text("title", "Untitled");
        List<Row> same = visit.db.text("SELECT id FROM stories WHERE author_id = ? AND title = ?", user, title);
        if (!same.isEmpty()) {
            visit.redirect("story?story=" + same.get(0).number("id"));
            return;
        }
        visit.db.begin();
        visit.db.textUpdate("INSERT INTO stories (topic_id, author_id, title, body, posted, day, comments, score,"
                + " status) VALUES (?, ?, ?, ?, NOW(), 400, 0, 0, ?)", topic, user, title, visit.text("body", ""),
                member.number("karma") > 30 ? 1 : 0);
        long story = visit.db.lastInsertId();
        for (String tag : visit.text("tags", "").split(" ")) {
            List<Row> known = visit.db.prepared("SELECT id FROM tags WHERE name = ? {id}", tag);
            for (Row row : known) {
                visit.db.preparedUpdate("INSERT INTO story_tags (story_id, tag_id)"
                        + " SELECT ?, ? FROM DUAL WHERE 1 = 1 {id}", story, row.number("id"));
            }
        }
        visit.db.textUpdate("INSERT INTO watches (user_id, story_id, seen_comments) VALUES (?, ?, 0)", user, story);
        visit.db.commit();
        visit.redirect("story?story=" + story);
    }

    static void rate(Visit visit) throws SQLException, IOException {
        Row member = visit.requireMember();
        long user = member.number("user_id");
        long comment = visit.number("comment", 1);
        long value = Math.max(-1, Math.min(1, visit.number("value", 1)));
        List<Row> rows = visit.db.prepared("SELECT id, author_id, score FROM comments WHERE id = ? {id}", comment);
        if (rows.isEmpty()) {
            throw new Visit.NotFound("no such comment");
        }
        List<Row> before = visit.db.text("SELECT id, value FROM ratings WHERE comment_id = ? AND user_id = ?",
                comment, user);
        visit.db.begin();
        if (before.isEmpty()) {
            visit.db.textUpdate("INSERT INTO ratings (comment_id, user_id, value, given) VALUES (?, ?, ?, NOW())",
                    comment, user, value);
            visit.db.preparedUpdate("UPDATE comments SET score = score + ? WHERE id = ? {id}", value, comment);
            if (rows.get(0).number("author_id") != user) {
                visit.db.preparedUpdate("UPDATE users SET karma = karma + ? WHERE id = ? {id}",
                        value, rows.get(0).number("author_id"));
            }
        } else {
            visit.db.textUpdate("UPDATE ratings SET value = ?, given = NOW() WHERE id = ?",
                    value, before.get(0).number("id"));
        }
        visit.db.commit();
        visit.redirect("comment?comment=" + comment);
    }

    /** A moderator accepts or rejects the oldest waiting story of a topic. */
    static void moderate(Visit visit) throws SQLException, IOException {
        Row member = visit.requireMember();
        if (member.number("moderator") != 1) {
            throw new Visit.Forbidden("not a moderator");
        }
        List<Row> waiting = visit.db.text("SELECT id, author_id FROM stories WHERE status = 0 AND topic_id = ?"
                + " ORDER BY id LIMIT 1", visit.number("topic", 1));
        if (waiting.isEmpty()) {
            visit.redirect("review");
            return;
        }
        long story = waiting.get(0).number("id");
        int verdict = "accept".equals(visit.text("verdict", "accept")) ? 1 : 2;
        visit.db.begin();
        visit.db.preparedUpdate("UPDATE stories SET status = ? WHERE id = ? AND status = 0 {id}", verdict, story);
        visit.db.textUpdate("INSERT INTO moderations (story_id, moderator_id, verdict, decided)"
                + " VALUES (?, ?, ?, NOW())", story, member.number("user_id"), verdict);
        if (verdict == 1) {
            visit.db.preparedUpdate("UPDATE users SET karma = karma + 3 WHERE id = ? {id}",
                    waiting.get(0).number("author_id"));
        }
        visit.db.commit();
        visit.redirect("review");
    }
}
