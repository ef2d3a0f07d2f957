package board;

import java.io.IOException;
import java.sql.SQLException;
import java.util.List;

/** Searches; they scan, so they are the dear ones. */
final class SearchPages {
    private static final int FOUND_PER_PAGE = 10;

    private SearchPages() {
    }

    static void stories(Visit visit) throws SQLException, IOException {
        String query = visit.text("q", "kernel");
        long number = visit.number("page", 0);
        Page page = visit.page("Stories about " + query);
        BrowsePages.topicList(visit);
        visit.sendPart(page);
        List<Row> found = visit.db.text("SELECT id, author_id, title, comments FROM stories WHERE title LIKE ?"
                + " AND status = 1 ORDER BY posted DESC LIMIT ?, ?",
                "%" + query + "%", number * FOUND_PER_PAGE, FOUND_PER_PAGE);
        visit.db.endGroup();
        BrowsePages.storyLines(visit, page, found);
        if (found.isEmpty()) {
            List<Row> tags = visit.db.prepared("SELECT name FROM tags WHERE name LIKE ? {id} LIMIT 5",
                    query.substring(0, Math.min(3, query.length())) + "%");
            for (Row tag : tags) {
                page.link("tag?tag=" + tag.text("name"), tag.text("name"));
            }
        }
        visit.send(page);
    }

    static void comments(Visit visit) throws SQLException, IOException {
        String query = visit.text("q", "kernel");
        long topic = visit.number("topic", 1);
        Page page = visit.page("Comments about " + query);
        List<Row> border = visit.db.prepared("SELECT MAX(id) AS newest FROM comments WHERE story_id > ? {id}", 0);
        List<Row> found = visit.db.text("SELECT c.id, c.story_id, c.author_id, c.subject FROM comments c"
                + " JOIN stories s ON s.id = c.story_id WHERE c.id > ? AND s.topic_id = ? AND c.subject LIKE ?"
                + " ORDER BY c.id DESC LIMIT 6", border.get(0).number("newest") - 5000, topic, "%" + query + "%");
        visit.db.endGroup();
        for (Row comment : found) {
            page.link("comment?comment=" + comment.number("id"), comment.text("subject"));
            List<Row> story = visit.db.prepared("SELECT title FROM stories WHERE id = ? {id}",
                    comment.number("story_id"));
            page.line("in " + story.get(0).text("title") + " by " + visit.nick(comment.number("author_id")));
        }
        visit.send(page);
    }

    static void users(Visit visit) throws SQLException, IOException {
        String prefix = visit.text("prefix", "a");
        Page page = visit.page("Users " + prefix);
        List<Row> found = visit.db.text(
                "SELECT id, nick, karma FROM users WHERE nick LIKE ? ORDER BY nick LIMIT 6", prefix + "%");
        for (Row user : found) {
            visit.board.nicks.put(user.number("id"), user.text("nick"));
            page.link("profile?user=" + user.number("id"), user.text("nick"));
            if (user.number("karma") > 20) {
                List<Row> best = visit.db.prepared("SELECT id, title FROM stories WHERE author_id = ? {id}"
                        + " ORDER BY score DESC LIMIT 1", user.number("id"));
                for (Row story : best) {
                    page.link("story?story=" + story.number("id"), story.text("title"));
                }
            }
        }
        List<Row> count = visit.db.text("SELECT COUNT(*) AS n FROM users WHERE nick LIKE ?", prefix + "%");
        page.line(count.get(0).number("n") + " in all");
        visit.send(page);
    }
}
