package board;

import java.io.IOException;
import java.sql.SQLException;
import java.util.List;

/** Pages that list stories. */
final class BrowsePages {
    private static final int PER_PAGE = 10;

    private BrowsePages() {
    }

    /** One line per story of a list; authors come from the cache or one look-up each. */
    static void storyLines(Visit visit, Page page, List<Row> stories) throws SQLException {
        for (Row story : stories) {
            page.link("story?story=" + story.number("id"), story.text("title"));
            page.line("by " + visit.nick(story.number("author_id")) + ", " + story.number("comments") + " comments");
        }
    }

    static List<Row> topicList(Visit visit) throws SQLException {
        List<Row> topics = visit.board.lists.get("topics");
        if (topics == null) {
            topics = visit.db.text("SELECT id, name, description FROM topics ORDER BY name");
            visit.db.endGroup();
            visit.board.lists.put("topics", topics);
        }
        return topics;
    }

    static void front(Visit visit) throws SQLException, IOException {
        Page page = visit.page("Stories of the day");
        Row member = visit.member();
        if (member != null) {
            List<Row> unseen = visit.db.prepared(
                    "SELECT COUNT(*) AS n FROM messages WHERE to_user = ? AND seen = 0 {id}", member.number("user_id"));
            page.line("Hello " + member.text("nick") + ", " + unseen.get(0).number("n") + " new messages");
            visit.db.endGroup();
        }
        for (Row topic : topicList(visit)) {
            page.link("topic?topic=" + topic.number("id"), topic.text("name"));
        }
        List<Row> stories = visit.db.text("SELECT id, topic_id, author_id, title, comments, LEFT(body, 160) AS lead"
                + " FROM stories WHERE status = 1 ORDER BY posted DESC, id DESC LIMIT ?", PER_PAGE);
        for (Row story : stories) {
            page.heading(story.text("title")).body(story.text("lead"));
        }
        visit.db.endGroup();
        List<Row> newest = visit.db.prepared("SELECT id, subject, score FROM comments"
                + " WHERE score >= 0 {id} ORDER BY id DESC LIMIT 5");
        for (Row comment : newest) {
            page.link("comment?comment=" + comment.number("id"), comment.text("subject"));
            page.line("score " + comment.number("score"));
        }
        visit.db.endGroup();
        storyLines(visit, page, stories);
        visit.send(page);
    }

    static void topics(Visit visit) throws SQLException, IOException {
        Page page = visit.page("Topics");
        for (Row topic : topicList(visit)) {
            List<Row> newest = visit.db.prepared("SELECT id, title, posted FROM stories WHERE topic_id = ?"
                    + " AND status = 1 {id} ORDER BY posted DESC LIMIT 1", topic.number("id"));
            page.link("topic?topic=" + topic.number("id"), topic.text("name")).body(topic.text("description"));
            for (Row story : newest) {
                page.link("story?story=" + story.number("id"), story.text("title"));
            }
        }
        visit.send(page);
    }

    static void topic(Visit visit) throws SQLException, IOException {
        long topic = visit.number("topic", 1);
        long number = visit.number("page", 0);
        List<Row> names = visit.db.prepared("SELECT name, description FROM topics WHERE id = ? {id}", topic);
        if (names.isEmpty()) {
            throw new Visit.NotFound("no such topic");
        }
        Page page = visit.page(names.get(0).text("name")).body(names.get(0).text("description"));
        List<Row> count = visit.db.text("SELECT COUNT(*) AS n FROM stories WHERE topic_id = ? AND status = 1", topic);
        page.line(count.get(0).number("n") + " stories");
        visit.db.endGroup();
        List<Row> stories = visit.db.text("SELECT id, author_id, title, comments FROM stories WHERE topic_id = ?"
                + " AND status = 1 ORDER BY posted DESC LIMIT ?, ?", topic, number * PER_PAGE, PER_PAGE);
        storyLines(visit, page, stories);
        page.link("topic?topic=" + topic + "&page=" + (number + 1), "older");
        visit.send(page);
    }

    static void archive(Visit visit) throws SQLException, IOException {
        long day = visit.number("day", 0);
        long number = visit.number("page", 0);
        Page page = visit.page("Stories of day " + day);
        List<Row> stories = visit.db.prepared("SELECT id, topic_id, author_id, title, comments FROM stories"
                + " WHERE day = ? AND status = 1 {id} ORDER BY id LIMIT ?, ?", day, number * PER_PAGE, PER_PAGE);
        storyLines(visit, page, stories);
        if (stories.isEmpty() && number == 0) {
            List<Row> near = visit.db.text("SELECT MAX(day) AS day FROM stories WHERE day < ? AND status = 1", day);
            page.link("archive?day=" + near.get(0).number("day"), "the day before with stories");
        } else if (stories.size() == PER_PAGE) {
            page.link("archive?day=" + day + "&page=" + (number + 1), "more of this day");
        }
        visit.send(page);
    }

    static void hot(Visit visit) throws SQLException, IOException {
        Page page = visit.page("Most discussed");
        List<Row> hot = visit.board.lists.get("hot");
        if (hot == null) {
            List<Row> newest = visit.db.text("SELECT MAX(id) AS id FROM comments");
            hot = visit.db.text("SELECT story_id, COUNT(*) AS n FROM comments WHERE id > ?"
                    + " GROUP BY story_id ORDER BY n DESC, story_id LIMIT 8", newest.get(0).number("id") - 4000);
            visit.board.lists.put("hot", hot);
            visit.db.endGroup();
        }
        for (Row entry : hot) {
            List<Row> story = visit.db.prepared(
                    "SELECT id, author_id, title, comments FROM stories WHERE id = ? {id}", entry.number("story_id"));
            storyLines(visit, page, story);
        }
        visit.send(page);
    }

    static void tag(Visit visit) throws SQLException, IOException {
        String name = visit.text("tag", "linux");
        long number = visit.number("page", 0);
        Page page = visit.page("Tag " + name);
        List<Row> tags = visit.db.text("SELECT id FROM tags WHERE name = ?", name);
        if (tags.isEmpty()) {
            List<Row> like = visit.db.text("SELECT name FROM tags WHERE name LIKE ? ORDER BY name LIMIT 5",
                    name.substring(0, Math.min(2, name.length())) + "%");
            for (Row other : like) {
                page.link("tag?tag=" + other.text("name"), other.text("name"));
            }
        } else {
            List<Row> stories = visit.db.prepared("SELECT s.id, s.author_id, s.title, s.comments FROM story_tags t"
                    + " JOIN stories s ON s.id = t.story_id WHERE t.tag_id = ? {id} ORDER BY s.id DESC LIMIT ?, ?",
                    tags.get(0).number("id"), number * PER_PAGE, PER_PAGE);
            visit.db.endGroup();
            storyLines(visit, page, stories);
        }
        visit.send(page);
    }

    static void stats(Visit visit) throws SQLException, IOException {
        Page page = visit.page("Numbers");
        List<Row> users = visit.db.text("SELECT COUNT(*) AS n, MAX(karma) AS best FROM users");
        page.line("Users: " + users.get(0).number("n") + ", best karma " + users.get(0).number("best"));
        List<Row> perTopic = visit.db.text("SELECT topic_id, COUNT(*) AS n, SUM(comments) AS c FROM stories"
                + " WHERE status = 1 GROUP BY topic_id ORDER BY n DESC");
        visit.db.endGroup();
        for (Row row : perTopic) {
            page.line("Topic " + row.number("topic_id") + ": " + row.number("n") + " stories");
        }
        List<Row> top = visit.db.prepared(
                "SELECT id, nick, karma FROM users WHERE karma >= ? {id} ORDER BY karma DESC LIMIT 5",
                users.get(0).number("best") / 2);
        for (Row row : top) {
            visit.board.nicks.put(row.number("id"), row.text("nick"));
            page.link("profile?user=" + row.number("id"), row.text("nick"));
        }
        visit.send(page);
    }

    /** A page whose one statement takes long and uses no CPU, as one that waits for a lock. No user asks for it. */
    static void report(Visit visit) throws SQLException, IOException {
        long ms = Math.min(visit.number("ms", 0), 5_000);
        visit.db.text("SELECT SLEEP(? / 1000) AS slept", ms);
        visit.send(visit.page("Report"));
    }
}
