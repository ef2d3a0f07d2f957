<?php
/**
 * WordPress's database drop-in: appends the request's id to every statement, and connects per request or once
 * per worker (mysqli's "p:" before the host keeps a connection open between the requests of a worker).
 */

final class MonitoredDatabase extends wpdb
{
    public function parse_db_host($host)
    {
        $parsed = parent::parse_db_host($host);
        if (is_array($parsed) && getenv('BLOG_CONNECTIONS') === 'persistent') {
            $parsed[0] = 'p:' . $parsed[0];
        }
        return $parsed;
    }

    public function db_connect($allow_bail = true)
    {
        $asked_us = TapscopeRequest::now_us();
        $connected = parent::db_connect($allow_bail);
        if ($this->dbh instanceof mysqli) {
            Connections::connected($this->dbh->thread_id, $asked_us);
        }
        return $connected;
    }

    public function query($query)
    {
        if (!$query || TapscopeRequest::$tag === '') {
            return parent::query($query);
        }
        $sent_us = TapscopeRequest::now_us();
        $result = parent::query($query . TapscopeRequest::$tag);
        TapscopeRequest::statement($sent_us, TapscopeRequest::now_us(), $this->dbh->thread_id ?? 0);
        return $result;
    }
}

$wpdb = new MonitoredDatabase(DB_USER, DB_PASSWORD, DB_NAME, DB_HOST);
