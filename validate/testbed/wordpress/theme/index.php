<?php
/** One template for all pages: the posts that were asked for, the comments of a single one, and a side bar. */
?><!DOCTYPE html>
<html><head><meta charset="utf-8"><?php wp_head(); ?></head><body>
<h1><a href="<?php echo esc_url(home_url('/')); ?>"><?php bloginfo('name'); ?></a></h1>
<?php if (is_search()) : ?><p>Found for <?php echo esc_html(get_search_query()); ?></p><?php endif; ?>
<?php if (is_author() && get_queried_object()) : ?>
<p><?php the_author_meta('description', get_queried_object_id()); ?></p>
<?php endif; ?>
<?php while (have_posts()) : the_post(); ?>
<article>
<h2><a href="<?php the_permalink(); ?>"><?php the_title(); ?></a></h2>
<p>by <?php the_author_posts_link(); ?>, <?php the_date(); ?>, <?php comments_number(); ?></p>
<?php is_singular() ? the_content() : the_excerpt(); ?>
<p><?php the_category(', '); ?> <?php the_tags(); ?></p>
<?php if (is_singular()) : ?>
<?php previous_post_link(); ?> <?php next_post_link(); ?>
<ol><?php wp_list_comments([], get_comments(['post_id' => get_the_ID(), 'status' => 'approve'])); ?></ol>
<?php comment_form(); ?>
<?php endif; ?>
</article>
<?php endwhile; ?>
<?php the_posts_pagination(); ?>
<ul><?php wp_list_categories(); ?></ul>
<ul><?php wp_get_archives(); ?></ul>
<?php wp_tag_cloud(['number' => 20]); ?>
<ul>
<?php foreach (get_comments(['number' => 5, 'status' => 'approve']) as $comment) : ?>
<li><a href="<?php echo esc_url(get_comment_link($comment)); ?>"><?php echo get_the_title($comment->comment_post_ID); ?></a></li>
<?php endforeach; ?>
</ul>
<?php wp_footer(); ?>
</body></html>
