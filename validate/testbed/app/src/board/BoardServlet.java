package board;

import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.sql.SQLException;
import java.util.HashMap;
import java.util.Map;

/** Hands each path to its interaction; 25 of them, 4 of which need POST and write, plus the log-in form. */
public final class BoardServlet extends HttpServlet {
    private static final long serialVersionUID = 1L;

    @FunctionalInterface
    interface Interaction {
        void serve(Visit visit) throws SQLException, IOException;
    }

    private final transient Map<String, Interaction> pages = new HashMap<>();
    private final transient Map<String, Interaction> forms = new HashMap<>();

    @Override
    public void init() {
        pages.put("/front", BrowsePages::front);
        pages.put("/topics", BrowsePages::topics);
        pages.put("/topic", BrowsePages::topic);
        pages.put("/archive", BrowsePages::archive);
        pages.put("/hot", BrowsePages::hot);
        pages.put("/tag", BrowsePages::tag);
        pages.put("/stats", BrowsePages::stats);
        pages.put("/report", BrowsePages::report);
        pages.put("/story", StoryPages::story);
        pages.put("/comment", StoryPages::comment);
        pages.put("/thread", StoryPages::thread);
        pages.put("/related", StoryPages::related);
        pages.put("/search", SearchPages::stories);
        pages.put("/search-comments", SearchPages::comments);
        pages.put("/search-users", SearchPages::users);
        pages.put("/profile", MemberPages::profile);
        pages.put("/author", MemberPages::author);
        pages.put("/inbox", MemberPages::inbox);
        pages.put("/watchlist", MemberPages::watchlist);
        pages.put("/review", MemberPages::review);
        forms.put("/login", MemberPages::login);
        forms.put("/post-comment", WriteForms::postComment);
        forms.put("/submit-story", WriteForms::submitStory);
        forms.put("/rate", WriteForms::rate);
        forms.put("/moderate", WriteForms::moderate);
    }

    @Override
    protected void doGet(HttpServletRequest request, HttpServletResponse response)
            throws ServletException, IOException {
        serve(pages, request, response);
    }

    @Override
    protected void doPost(HttpServletRequest request, HttpServletResponse response)
            throws ServletException, IOException {
        serve(forms, request, response);
    }

    private static void serve(Map<String, Interaction> table, HttpServletRequest request,
            HttpServletResponse response) throws ServletException, IOException {
        Interaction interaction = table.get(request.getPathInfo());
        if (interaction == null) {
            response.sendError(HttpServletResponse.SC_NOT_FOUND);
            return;
        }
        Board board = Board.of(request.getServletContext());
        try (Db db = new Db(board, request.getHeader("X-Request-ID"))) {
            interaction.serve(new Visit(board, db, request, response));
        } catch (Visit.BadRequest e) {
            response.sendError(HttpServletResponse.SC_BAD_REQUEST, e.getMessage());
        } catch (Visit.Forbidden e) {
            response.sendError(HttpServletResponse.SC_FORBIDDEN, e.getMessage());
        } catch (Visit.NotFound e) {
            response.sendError(HttpServletResponse.SC_NOT_FOUND, e.getMessage());
        } catch (SQLException e) {
            throw new ServletException(e);
        }
    }
}
