package board;

import java.io.IOException;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;

/** Pages around one story and its comments. */
final class StoryPages {
    private static final int COMMENTS_PER_PAGE = 8;
    private static final int MAX_DEPTH = 6;

    private StoryPages() {
    }

    private static Row storyRow(Visit visit, long id) throws SQLException {
        List<Row> rows = visit.db.prepared("SELECT id, topic_id, author_id, title, body, comments, score, status"
                + " FROM stories WHERE id = ? {id}", id);
        if (rows.isEmpty()) {
            throw new Visit.NotFound("no such story");
        }
        return rows.get(0);
    }

    private static void commentBlock(Visit visit, Page page, Row comment) throws SQLException {
        page.heading(comment.text("subject"));
        page.line("by " + visit.nick(comment.number("author_id")) + ", score " + comment.number("score"));
        page.body(comment.text("body"));
        page.link("comment?comment=" + comment.number("id"), "alone");
    }

    static void story(Visit visit) throws SQLException, IOException {
        long id = visit.number("story", 1);
        long number = visit.number("page", 0);
        Row member = visit.member();
        Row story = storyRow(visit, id);
        Page page = visit.page(story.text("title"));
        page.line("by " + visit.nick(story.number("author_id"))).body(story.text("body"));
        List<Row> tags = visit.db.text(
                "SELECT g.name FROM story_tags t JOIN tags g ON g.id = t.tag_id WHERE t.story_id = ?", id);
        for (Row tag : tags) {
            page.link("tag?tag=" + tag.text("name"), tag.text("name"));
        }
        visit.db.endGroup();
        List<Row> comments = visit.db.text("SELECT id, author_id, subject, body, score FROM comments"
                + " WHERE story_id = ? ORDER BY id LIMIT ?, ?", id, number * COMMENTS_PER_PAGE, COMMENTS_PER_PAGE);
        for (Row comment : comments) {
            commentBlock(visit, page, comment);
        }
        if (member != null) {
            List<Row> watch = visit.db.prepared(
                    "SELECT seen_comments FROM watches WHERE user_id = ? AND story_id = ? {id}",
                    member.number("user_id"), id);
            page.line(watch.isEmpty() ? "not watched" : "watched, " + watch.get(0).number("seen_comments") + " seen");
        }
        if (comments.size() == COMMENTS_PER_PAGE) {
            page.link("story?story=" + id + "&page=" + (number + 1), "more comments");
        }
        visit.send(page);
    }

    private static Row commentRow(Visit visit, long id) throws SQLException {
        List<Row> rows = visit.db.prepared("SELECT id, story_id, parent_id, author_id, subject, body, score"
                + " FROM comments WHERE id = ? {id}", id);
        return rows.isEmpty() ? null : rows.get(0);
    }

    /** One comment with everything it answers, up to the story. */
    static void comment(Visit visit) throws SQLException, IOException {
        Row comment = commentRow(visit, visit.number("comment", 1));
        if (comment == null) {
            throw new Visit.NotFound("no such comment");
        }
        Page page = visit.page(comment.text("subject"));
        commentBlock(visit, page, comment);
        long parent = comment.number("parent_id");
        for (int depth = 0; parent != 0 && depth < MAX_DEPTH; depth++) {
            Row above = commentRow(visit, parent);
            if (above == null) {
                break;
            }
            commentBlock(visit, page, above);
            parent = above.number("parent_id");
        }
        List<Row> story = visit.db.text("SELECT id, title FROM stories WHERE id = ?", comment.number("story_id"));
        for (Row row : story) {
            page.link("story?story=" + row.number("id"), row.text("title"));
        }
        visit.send(page);
    }

    /** A comment with the tree of answers below it, one look-up per branch. */
    static void thread(Visit visit) throws SQLException, IOException {
        Row top = commentRow(visit, visit.number("comment", 1));
        if (top == null) {
            throw new Visit.NotFound("no such comment");
        }
        Page page = visit.page(top.text("subject"));
        commentBlock(visit, page, top);
        List<Long> open = new ArrayList<>(List.of(top.number("id")));
        for (int lookups = 0; !open.isEmpty() && lookups < 10; lookups++) {
            long id = open.remove(0);
            List<Row> answers = visit.db.text("SELECT id, author_id, subject, body, score FROM comments"
                    + " WHERE parent_id = ? ORDER BY score DESC, id LIMIT 4", id);
            for (Row answer : answers) {
                page.heading(answer.text("subject")).body(answer.text("body"));
                open.add(answer.number("id"));
            }
        }
        visit.send(page);
    }

    static void related(Visit visit) throws SQLException, IOException {
        Row story = storyRow(visit, visit.number("story", 1));
        Page page = visit.page("Related to " + story.text("title"));
        List<Row> tags = visit.db.prepared(
                "SELECT tag_id FROM story_tags WHERE story_id = ? {id} ORDER BY tag_id", story.number("id"));
        for (Row tag : tags) {
            List<Row> others = visit.db.text("SELECT s.id, s.author_id, s.title, s.comments FROM story_tags t"
                    + " JOIN stories s ON s.id = t.story_id WHERE t.tag_id = ? AND s.id <> ? AND s.status = 1"
                    + " ORDER BY s.score DESC, s.id LIMIT 3", tag.number("tag_id"), story.number("id"));
            BrowsePages.storyLines(visit, page, others);
            visit.db.endGroup();
        }
        if (tags.isEmpty()) {
            page.line("no tags");
            BrowsePages.storyLines(visit, page, visit.db.text("SELECT id, author_id, title, comments FROM stories"
                    + " WHERE topic_id = ? AND status = 1 ORDER BY score DESC LIMIT 3", story.number("topic_id")));
        }
        visit.send(page);
    }
}
