<?php
/**
 * Installs WordPress into an empty database and writes its content, by WordPress's own functions.
 *
 *     php fill.php '{"address": ..., "words": [...], "filler": [...], "authors": N, "topics": N, "tags": N,
 *                    "posts": N, "comments": N, "password": ...}'
 *
 * The same arguments give the same content (but for the times at which passwords and rows were made).
 */

$wish = json_decode($argv[1], true, 8, JSON_THROW_ON_ERROR);
define('WP_INSTALLING', true);
$_SERVER['HTTP_HOST'] = $wish['address'];
$_SERVER['REQUEST_URI'] = '/';
$_SERVER['REQUEST_METHOD'] = 'GET';
$_SERVER['SERVER_PROTOCOL'] = 'HTTP/1.1';
require __DIR__ . '/prepend.php';
require ABSPATH . 'wp-load.php';
require ABSPATH . 'wp-admin/includes/upgrade.php';

mt_srand(20131);

function word(array $from): string
{
    return $from[mt_rand(0, count($from) - 1)];
}

function text(array $wish, int $words): string
{
    $out = [];
    for ($n = 0; $n < $words; $n++) {
        $out[] = (mt_rand(0, 9) < 4 ? word($wish['words']) : word($wish['filler'])) . ($n % 12 === 11 ? '.' : '');
    }
    return ucfirst(implode(' ', $out));
}

wp_install('The board', 'admin', 'admin@example.org', true, '', $wish['password']);
wp_delete_post(1, true);
update_option('siteurl', 'http://' . $wish['address']);
update_option('home', 'http://' . $wish['address']);
update_option('permalink_structure', '/archives/%post_id%/');
update_option('comment_moderation', 0);
update_option('comment_previously_approved', 0);
update_option('comments_notify', 0);
update_option('moderation_notify', 0);
update_option('close_comments_for_old_posts', 0);
update_option('thread_comments', 1);
switch_theme('testbed');
$wp_rewrite->init();
$wp_rewrite->flush_rules(false);

wp_defer_term_counting(true);
wp_defer_comment_counting(true);
$authors = [];
$password = wp_hash_password($wish['password']);
for ($n = 1; $n <= $wish['authors']; $n++) {
    $id = wp_insert_user([
        'user_login' => "author$n",
        'user_pass' => wp_generate_password(),
        'user_email' => "author$n@example.org",
        'description' => text($wish, 20),
        'role' => 'author',
    ]);
    // As WP_Application_Passwords stores them, but with a password that the emulated users know.
    update_user_meta($id, '_application_passwords', [[
        'uuid' => wp_generate_uuid4(),
        'app_id' => '',
        'name' => 'users',
        'password' => $password,
        'created' => time(),
        'last_used' => null,
        'last_ip' => null,
    ]]);
    $authors[] = $id;
}
update_network_option(get_main_network_id(), WP_Application_Passwords::OPTION_KEY_IN_USE, true);
$topics = [];
for ($n = 1; $n <= $wish['topics']; $n++) {
    $topics[] = wp_insert_term('Topic ' . $wish['words'][$n], 'category')['term_id'];
}
$tags = array_map(static fn (int $n) => $wish['words'][$n], range(20, 19 + $wish['tags']));
$posts = [];
for ($n = 1; $n <= $wish['posts']; $n++) {
    $time = 1735689600 + intdiv($n * 365 * 86400, $wish['posts'] + 1);
    $tagged = [];
    for ($k = mt_rand(0, 4); $k > 0; $k--) {
        $tagged[] = word($tags);
    }
    $posts[] = wp_insert_post([
        'post_title' => text($wish, mt_rand(3, 7)),
        'post_content' => '<p>' . text($wish, mt_rand(60, 250)) . '</p><p>' . text($wish, mt_rand(20, 120)) . '</p>',
        'post_status' => 'publish',
        'post_author' => $authors[mt_rand(0, count($authors) - 1)],
        'post_date' => gmdate('Y-m-d H:i:s', $time),
        'post_category' => [$topics[mt_rand(0, count($topics) - 1)]],
        'tags_input' => $tagged,
    ]);
}
for ($n = 1; $n <= $wish['comments']; $n++) {
    $writer = mt_rand(1, 500);
    wp_insert_comment([
        'comment_post_ID' => $posts[mt_rand(0, count($posts) - 1)],
        'comment_author' => "reader$writer",
        'comment_author_email' => "reader$writer@example.org",
        'comment_content' => text($wish, mt_rand(8, 60)),
        'comment_date' => gmdate('Y-m-d H:i:s', 1767225600 + $n * 60),
        'comment_approved' => 1,
    ]);
}
wp_defer_term_counting(false);
wp_defer_comment_counting(false);
$counts = ['posts' => $posts[0] . '-' . end($posts), 'authors' => $authors[0] . '-' . end($authors)];
echo json_encode($counts + ['topics' => $topics[0] . '-' . end($topics)]), "\n";
