package board;

import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** One row of a result set, copied out so that the statement can be closed at once. */
final class Row {
    private final Map<String, Object> values;

    private Row(Map<String, Object> values) {
        this.values = values;
    }

    static List<Row> all(ResultSet results) throws SQLException {
        ResultSetMetaData meta = results.getMetaData();
        int columns = meta.getColumnCount();
        List<Row> rows = new ArrayList<>();
        while (results.next()) {
            Map<String, Object> values = new LinkedHashMap<>();
            for (int i = 1; i <= columns; i++) {
                values.put(meta.getColumnLabel(i), results.getObject(i));
            }
            rows.add(new Row(values));
        }
        return rows;
    }

    long number(String column) {
        Object value = values.get(column);
        return value == null ? 0 : ((Number) value).longValue();
    }

    String text(String column) {
        return String.valueOf(values.get(column));
    }
}
